"""All that is known of one node and its address when it is decided what to do next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Literal

from cloud.types import Address
from controllers.anycast_ip.claim import Claim
from kube.types import Node


class Unseen(Enum):
    """What stands in place of an address that was not seen: nobody has looked, or it was not there."""

    UNKNOWN = "unknown"
    GONE = "gone"


UNKNOWN: Literal[Unseen.UNKNOWN] = Unseen.UNKNOWN
GONE: Literal[Unseen.GONE] = Unseen.GONE


class Do(StrEnum):
    """The steps, each of which can be repeated after a crash without harm."""

    NOTHING = "nothing"
    LOOK = "look at the instance"
    CLAIM = "claim"
    ADOPT = "adopt"
    INHERIT = "inherit"
    TAG = "create tags"
    ALLOCATE = "allocate"
    FIND = "find by name"
    RENEW = "renew"
    WATCH = "watch"
    BIND = "bind"
    OPEN = "open"
    CLOSE = "close"
    STRIP = "take all marks off"
    FREE = "take the taint off"
    CONFIRM = "confirm"
    UNBIND = "unbind"
    RELEASE = "release"
    UNTAG = "delete tags"
    FORGET = "forget"


@dataclass(frozen=True)
class Note:
    """What is told on the node; *request* is what it was the answer to, and makes it no other note."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"
    request: str = field(default="", compare=False)


@dataclass(frozen=True)
class Step:
    do: Do
    note: Note | None = None
    address: Address | None = None


@dataclass
class Known:
    """What this process has found out about one node; all of it can be found out again.

    By default as after a start: whether the address was ordered is in doubt, and its tags are taken to be
    there until the cloud says otherwise. *absent_since*: of the address, or of what is looked up by name since it
    was ordered the last time. *untagged*: none was ever created, or all are deleted. *unready* holds
    the times, of a monotonic clock, before which a step is not to be tried again, and *failures* how often in a
    row it failed, or brought no progress.
    """

    seen: Address | Unseen = UNKNOWN
    recheck: bool = False
    absent_since: float | None = None
    on_instance: tuple[Address, ...] | None = None
    doubt: bool = True
    refused: bool = False
    nothing_found: bool = False
    tagged: bool = True
    was_wanted: bool = False
    confirmed: bool = False
    released: bool = False
    untagged: bool = False
    failures: Counter[Do] = field(default_factory=Counter)
    unready: dict[Do, float] = field(default_factory=dict)
    told: Note | None = None

    def start_anew(self) -> None:
        """There is no claim any more: what was known of its address is of no use."""
        vars(self).update(vars(Known(was_wanted=self.was_wanted, told=self.told)))

    def expect(self, do: Do, at: float) -> None:
        """Do not try before *at*, and count from nothing."""
        self.failures.pop(do, None)
        self.unready[do] = at


@dataclass(frozen=True)
class Case:
    """*node* is None when it is gone; *forebear* is the claim of a former Node object on the same instance.

    *order_age* is in seconds since the order was meant to go out; *found* is an address with the tags of this node;
    *elsewhere*: another claim has the same address, or order.
    """

    uid: str
    node: Node | None
    claim: Claim | None
    known: Known
    order_age: float = 0.0
    forebear: Claim | None = None
    found: Address | None = None
    elsewhere: bool = False
