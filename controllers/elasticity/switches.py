"""The two AUTO_SCALE_EKS switches say whether a pod may leave home: the table of the original, to the letter."""

from __future__ import annotations

from webhook.elasticity import SWITCH


def allows(everywhere: bool | None, of_pod: bool | None, *, local_opt_out: bool) -> bool:
    """Whether super nodes are open to a pod; None is a switch that nobody set.

    In the original's table (TKE Resilience) a pod's own switch only opens what is closed for all; in its later
    one, with *local_opt_out*, it closes, too.
    """
    if local_opt_out and of_pod is False:
        return False
    return of_pod is True or everywhere is not False


def parse(said: str | None) -> tuple[bool | None, str]:
    """What a switch says, and what is wrong with it: then, too, it counts as not set."""
    word = (said or "").strip().lower()
    if said is None or word in ("true", "false"):
        return {"true": True, "false": False}.get(word), ""
    return None, f'{SWITCH} is {said[:20]!r}, neither "true" nor "false", and counts as not set'
