"""What one decision rests on: a node, its address claim, what is related to them, and what the cloud was asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Literal, TypeVar

from cloud.types import Address
from controllers.anycast_ip.claim import Claim
from kube.types import Node


class Unseen(Enum):
    """In place of an address: nothing was asked, or it is not sure yet that it is gone; or it is gone."""

    UNKNOWN = "unknown"
    GONE = "gone"


UNKNOWN: Literal[Unseen.UNKNOWN] = Unseen.UNKNOWN
GONE: Literal[Unseen.GONE] = Unseen.GONE


class Action(StrEnum):
    """The actions, each of which can be repeated after a crash without harm."""

    NOTHING = "nothing"
    LOOK = "look at the instance"
    CLAIM = "claim"
    ADOPT = "adopt"
    INHERIT = "inherit"
    TAKE = "take from the pool"
    KEEP = "keep in the pool"
    TAG = "create tags"
    ALLOCATE = "allocate"
    FIND = "find by name"
    RECORD = "record the address"
    RECORD_LABELS = "record the labels"
    RENEW = "renew"
    WATCH = "watch"
    ANNOUNCE = "announce"
    BIND = "bind"
    CHECK = "check the egress"
    OPEN = "open"
    OPEN_WITHOUT = "open without an address"
    RESIZE = "set the bandwidth"
    EXAMINE = "look whether the instance runs"
    CLOSE = "close"
    STRIP = "remove all annotations"
    FREE = "take the taint off"
    UNBIND = "unbind"
    RELEASE = "release"
    UNTAG = "delete tags"
    FORGET = "forget"


READS = (Action.LOOK, Action.WATCH, Action.FIND, Action.EXAMINE)
"""Questions to the cloud: once asked in a reconcile, the same one means to wait and ask again."""


@dataclass(frozen=True)
class Note:
    """The text of an Event; *request* is what it was the answer to, and makes it no other note."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Warning"
    request: str = field(default="", compare=False)


@dataclass(frozen=True)
class Step:
    action: Action
    note: Note | None = None
    address: Address | None = None


@dataclass(frozen=True)
class Related:
    """*predecessor* is the claim of a Node object that was on the same instance, *heir* the uid of one that is now.

    *rival* is the claim of another node on the same instance, which gets its address. *found* is an address with the
    tags of this node; *elsewhere*: another claim has the same address, or order; *was_wanted*: the node had the labels
    when it was last seen with or without them.
    """

    predecessor: Claim | None = None
    rival: Claim | None = None
    heir: str = ""
    found: Address | None = None
    elsewhere: bool = False
    was_wanted: bool = False


LAG = 60.0
"""Seconds for which nothing must be found by the name of an order before it is taken to have brought nothing."""


@dataclass(frozen=True)
class Order:
    """*age* is in seconds since the order was meant to go out; *in_doubt*: it may have reached the cloud.

    *refused*: the cloud will not take it any more; *outdated*: other terms are wanted by now; *put_off*: a quota or a
    policy has refused it for a while; *exhausted*: a quota has been used up for long; *tagged*: its tags exist. By its
    name was *found* an address, or for so many seconds *nothing*; both are None before a look.
    """

    age: float = 0.0
    in_doubt: bool = True
    refused: bool = False
    outdated: bool = False
    put_off: bool = False
    exhausted: bool = False
    tagged: bool = False
    found: Address | None = None
    nothing_for: float | None = None

    @property
    def is_void(self) -> bool:
        """Whether it has brought nothing: it never reached the cloud, or is not found there for long."""
        return not self.in_doubt or (self.nothing_for is not None and self.nothing_for >= LAG)


@dataclass(frozen=True)
class Seen:
    """What the cloud answered: *address* is the claim's, *on_instance* None before it was asked for.

    *seconds* is for how long the address has been in its status. *owner* is another node, whose claim has one of
    *on_instance*. *resists*: it could not be bound more than once; *is_replaced*: its instance has one that no
    claim has, and that will do.
    """

    address: Address | Unseen = UNKNOWN
    on_instance: tuple[Address, ...] | None = None
    seconds: float = 0.0
    owner: str = ""
    resists: bool = False
    is_replaced: bool = False


@dataclass(frozen=True)
class Pool:
    """*offer* is the claim of an idle address that the node may have.

    *has_place*: the address of the claim, whose node is gone, is to stay idle. *stays_anyway*: also if the
    settings have changed since it was ordered.
    """

    offer: Claim | None = None
    has_place: bool = False
    stays_anyway: bool = False


@dataclass(frozen=True)
class Announcement:
    """An address that is not to be bound yet: listed *since*, and to be bound from *until* on.

    Both are None while it is not listed; *problem* is why the list could not be written.
    """

    since: datetime | None = None
    until: datetime | None = None
    problem: str = ""


@dataclass(frozen=True)
class Checked:
    """The *address*, by its id, and its IP, which the service at *url* is to see."""

    address: str
    ip: str
    url: str


@dataclass(frozen=True)
class Check:
    """Of a closed node's egress since its address was bound. *token* is that of the pod that is awaited, if any.

    The pod was *created* at that time, None before it certainly exists. *trouble* is why the last one failed; after
    *failures* in a row, the next one begins *not_before*.
    """

    of: Checked
    token: str = ""
    created: float | None = None
    passed: bool = False
    trouble: str = ""
    failures: int = 0
    not_before: float = -math.inf


@dataclass(frozen=True)
class Snapshot:
    """*node* is None when it is gone; *announcement* is why the address is not to be bound yet, if so.

    *runs*: the instance of the claim does, None before it was asked for. *is_braked*: nothing is unbound from it then.
    """

    uid: str
    node: Node | None = None
    claim: Claim | None = None
    related: Related = Related()
    order: Order = Order()
    seen: Seen = Seen()
    pool: Pool = Pool()
    announcement: Announcement | None = None
    egress: Check | None = None
    runs: bool | None = None
    is_braked: bool = False

    @property
    def name(self) -> str:
        return self.node.metadata.name if self.node else (self.claim.node if self.claim else "")


T = TypeVar("T")


def present(found: T | None) -> T:
    """The planner plans no action without what it is about."""
    if found is None:
        raise ValueError("an action was planned without its node, claim or address")
    return found
