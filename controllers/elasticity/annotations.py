"""What a pod and the global switch ask for, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from controllers.elasticity.pods import Pod
from settings import ElasticitySettings
from webhook.elasticity import LOCAL_REPLICAS, MODE, PIN, PREFER, SWITCH, local_replicas, replicas_in

NAMES = {True: "true", False: "false", None: "unset"}


@dataclass(frozen=True)
class Wish:
    """*problems* are (reason of the Event, message); what is wrong counts as not set."""

    allowed: bool
    inputs: str
    replicas: int | None
    pin: bool = False
    problems: tuple[tuple[str, str], ...] = ()


def wish_of(pod: Pod, everywhere: bool | None, settings: ElasticitySettings) -> Wish:
    """*everywhere* is the global switch."""
    own, wrong_switch = parse(pod.metadata.annotations.get(SWITCH))
    replicas, wrong_number = _replicas(pod, settings)
    pin, wrong_mode = _pin(pod, settings)
    problems = (
        ("BadSwitch", wrong_switch),
        ("BadLocalReplicas", wrong_number),
        ("BadPlacementMode", wrong_mode),
    )
    return Wish(
        allows(everywhere, own, local_opt_out=settings.local_opt_out),
        f"global={NAMES[everywhere]} local={NAMES[own]}",
        replicas,
        pin,
        tuple((reason, message) for reason, message in problems if message),
    )


def is_readable(pod: Pod) -> bool:
    """Whether what it says of switch and number can be read, or it says nothing."""
    annotations = pod.metadata.annotations
    return _are_readable(annotations.get(SWITCH), annotations.get(LOCAL_REPLICAS))


def allows(everywhere: bool | None, of_pod: bool | None, *, local_opt_out: bool) -> bool:
    """Whether super nodes are open to a pod, by the table of the original; None is a switch that is not set.

    In the original's table (TKE Resilience) a pod's own switch only opens what is closed for all; in its later
    one, with *local_opt_out*, it closes, too.
    """
    if local_opt_out and of_pod is False:
        return False
    return of_pod is True or everywhere is not False


def parse(value: str | None) -> tuple[bool | None, str]:
    """A switch, and what is wrong with it: then, too, it counts as not set."""
    word = (value or "").strip().lower()
    if value is None or word in ("true", "false"):
        return {"true": True, "false": False}.get(word), ""
    return None, f'{SWITCH} is {value[:20]!r}, neither "true" nor "false", and counts as not set'


@lru_cache(maxsize=1024)
def _are_readable(switch: str | None, number: str | None) -> bool:
    try:
        return not parse(switch)[1] and (number is None or replicas_in(number) >= 0)
    except ValueError:
        return False


def _pin(pod: Pod, settings: ElasticitySettings) -> tuple[bool, str]:
    mode = pod.metadata.annotations.get(MODE, settings.placement).strip().lower()
    if mode in (PREFER, PIN):
        return mode == PIN, ""
    wrong = f'{MODE} is {mode[:20]!r}, neither "{PREFER}" nor "{PIN}", and counts as not set'
    return settings.placement == PIN, wrong


def _replicas(pod: Pod, settings: ElasticitySettings) -> tuple[int | None, str]:
    try:
        return local_replicas(pod.metadata, settings), ""
    except ValueError as error:
        return None, str(error)
