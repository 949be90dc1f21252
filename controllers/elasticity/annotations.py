"""What a pod and the global switch ask for, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from api.elasticity import (
    LOCAL_REPLICAS,
    MODE,
    PIN,
    PREFER,
    SWITCH,
    Share,
    local_replicas,
    replicas_in,
    why_no_share,
)
from controllers.elasticity.pods import Pod
from settings import ElasticitySettings

NAMES = {True: "true", False: "false", None: "unset"}


@dataclass(frozen=True)
class Wanted:
    """How many replicas a workload wants; *unknown* says what is not known yet, *problem* what will not be."""

    replicas: int = 0
    unknown: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Wish:
    """*problems* are (reason of the Event, message); what is wrong counts as not set.

    *share* is what *replicas* are of, and *unknown* says what is not known of that yet.
    """

    allowed: bool
    inputs: str
    replicas: int | None
    pin: bool = False
    problems: tuple[tuple[str, str], ...] = ()
    share: str = ""
    unknown: str = ""

    @property
    def number(self) -> str:
        """Of local replicas, as messages have it."""
        if self.replicas is None:
            return "unset"
        return f"{self.replicas} ({self.share})" if self.share else str(self.replicas)


def wish_of(
    pod: Pod, everywhere: bool | None, settings: ElasticitySettings, wanted: Callable[[], Wanted]
) -> Wish:
    """*everywhere* is the global switch; *wanted* is read for percentages only."""
    own, wrong_switch = parse(pod.metadata.annotations.get(SWITCH))
    number, wrong_number = _replicas(pod, settings)
    of = wanted() if isinstance(number, Share) else Wanted()
    pin, wrong_mode = _pin(pod, settings)
    problems = (
        ("BadSwitch", wrong_switch),
        ("BadLocalReplicas", wrong_number or of.problem),
        ("BadPlacementMode", wrong_mode),
    )
    return Wish(
        allows(everywhere, own, local_opt_out=settings.local_opt_out),
        f"global={NAMES[everywhere]} local={NAMES[own]}",
        _number(number, of),
        pin,
        tuple((reason, message) for reason, message in problems if message),
        f"{number} of {of.replicas}" if isinstance(number, Share) else "",
        of.unknown,
    )


def is_readable(pod: Pod, settings: ElasticitySettings) -> bool:
    """Whether what it says of switch and number can be followed, or it says nothing."""
    annotations = pod.metadata.annotations
    number = annotations.get(LOCAL_REPLICAS)
    if number and "%" in number and why_no_share(pod.metadata, settings):
        return False
    return _are_readable(annotations.get(SWITCH), number)


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
        _ = number is None or replicas_in(number)
    except ValueError:
        return False
    return not parse(switch)[1]


def _pin(pod: Pod, settings: ElasticitySettings) -> tuple[bool, str]:
    mode = pod.metadata.annotations.get(MODE, settings.placement).strip().lower()
    if mode in (PREFER, PIN):
        return mode == PIN, ""
    wrong = f'{MODE} is {mode[:20]!r}, neither "{PREFER}" nor "{PIN}", and counts as not set'
    return settings.placement == PIN, wrong


def _number(number: int | Share | None, of: Wanted) -> int | None:
    if not isinstance(number, Share):
        return number
    return None if of.problem else number.of(of.replicas)


def _replicas(pod: Pod, settings: ElasticitySettings) -> tuple[int | Share | None, str]:
    try:
        return local_replicas(pod.metadata, settings), ""
    except ValueError as error:
        return None, str(error)
