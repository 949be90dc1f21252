"""What a pod asks for in its annotations, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.elasticity.pods import Pod
from controllers.elasticity.switches import allows, parse
from settings import ElasticitySettings
from webhook.elasticity import MODE, PIN, PREFER, SWITCH, local_replicas

NAMES = {True: "true", False: "false", None: "unset"}


@dataclass(frozen=True)
class Wish:
    """*problems* are (reason of the Event, message); what is wrong counts as not said."""

    allowed: bool
    inputs: str
    replicas: int | None
    pin: bool = False
    problems: tuple[tuple[str, str], ...] = ()


def wish_of(pod: Pod, everywhere: bool | None, settings: ElasticitySettings) -> Wish:
    own, wrong_switch = parse(pod.metadata.annotations.get(SWITCH))
    replicas, wrong_number = _replicas(pod, settings)
    pin, wrong_mode = _pin(pod, settings)
    said = (
        ("BadSwitch", wrong_switch),
        ("BadLocalReplicas", wrong_number),
        ("BadPlacementMode", wrong_mode),
    )
    return Wish(
        allows(everywhere, own, local_opt_out=settings.local_opt_out),
        f"global={NAMES[everywhere]} local={NAMES[own]}",
        replicas,
        pin,
        tuple((reason, message) for reason, message in said if message),
    )


def _pin(pod: Pod, settings: ElasticitySettings) -> tuple[bool, str]:
    said = pod.metadata.annotations.get(MODE, settings.placement).strip().lower()
    if said in (PREFER, PIN):
        return said == PIN, ""
    wrong = f'{MODE} is {said[:20]!r}, neither "{PREFER}" nor "{PIN}", and counts as not set'
    return settings.placement == PIN, wrong


def _replicas(pod: Pod, settings: ElasticitySettings) -> tuple[int | None, str]:
    try:
        return local_replicas(pod.metadata, settings), ""
    except ValueError as error:
        return None, str(error)
