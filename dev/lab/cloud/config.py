"""The knobs of the emulator, with the most plausible defaults; they can be changed while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from dev.lab.errors import LabError

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Lag = Annotated[float, msgspec.Meta(ge=0, le=600)]
Count = Annotated[int, msgspec.Meta(ge=0)]

SECRET_ID = "AKIDemulatedcloud"  # noqa: S105 - it opens nothing but the emulator
SECRET_KEY = "not-a-secret"  # noqa: S105


class Knobs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    # Time that the cloud takes for its tasks.
    allocate_seconds: Seconds = 1.0
    bind_seconds: Seconds = 2.0
    unbind_seconds: Seconds = 2.0
    release_seconds: Seconds = 1.0
    bandwidth_seconds: Seconds = 0.5
    weight_seconds: Seconds = 1.0

    # How far its indexes are behind.
    tag_lag_seconds: Lag = 1.0
    """Of the Tag API's searches, and of tag filters in DescribeAddresses."""
    filter_lag_seconds: Lag = 0.0
    """Of the other filters of DescribeAddresses; AddressIds are always answered from what is true now."""
    stale_rows: bool = False
    """Filters show their rows as of then, too; otherwise the rows of an old index are read again."""
    new_tag_seconds: Seconds = 0.0
    """From CreateTag until AllocateAddresses knows the tag."""

    # Undocumented rules.
    instance_shown_while_binding: bool = True
    instance_shown_after_unbinding: bool = False
    already_bound_while_binding: bool = True
    """Refuse a second address while the first is still BINDING; otherwise the later task fails."""
    instance_end_unbinds: bool = True
    """Otherwise an address stays bound to an instance that is no more."""
    tag_batches_atomic: bool = True
    """One bad tag of CreateTags or DeleteTags spoils all; otherwise the good ones are done before the error."""
    client_token_seconds: Seconds = 86400.0
    token_busy_while_creating: bool = False
    """A repeated ClientToken is answered IdempotentProcessing until the first request's task is done."""

    # The account.
    accounts: dict[str, str] = msgspec.field(default_factory=lambda: {SECRET_ID: SECRET_KEY})
    """Secret keys by secret ids."""
    anycast_allowed: bool = True
    denied: list[str] = []
    """Actions that the account's policy does not allow."""
    denied_resources: dict[str, list[str]] = {}
    """By action, or ``*`` for all: ids, or tags as ``key=value``, on which the policy does not allow it."""
    instances_exist: bool = True
    """An instance that was not added exists all the same, when its id is well formed."""
    instances_run: bool = True
    """Such instances are RUNNING; otherwise STOPPING, as when the pool of a node that leaves is scaled in."""

    # Quotas and rates.
    quota_total: Count = 20
    quota_daily: Count | None = None
    """Twice the total when not set."""
    tag_keys: Count = 1000
    tag_values: Count = 1000
    """Values of one key."""
    rate_limits: bool = True
    rates: dict[str, float] = {}
    """Calls in a second, by action, instead of the documented ones."""

    # Trouble. Each share is of the calls of ``faulty_actions``, of all calls when that is empty.
    faulty_actions: list[str] = []
    throttled: Share = 0.0
    internal_errors: Share = 0.0
    server_errors: Share = 0.0
    """Answered 502 with a page of HTML."""
    html: Share = 0.0
    """Answered 200 with a page of HTML."""
    errors_after_commit: bool = False
    """The three above come after the call was carried out, not instead of that."""
    lost: Share = 0.0
    """Carried out, then the connection breaks without a word."""
    slow: Share = 0.0
    bind_fails: Share = 0.0
    errors: dict[str, str] = {}
    """Actions that are answered with this error code and not carried out."""
    clock_skew_seconds: float = 0.0
    """The cloud's clock against this machine's, for the age of signatures."""
    seed: int = 0


def turn(knobs: Knobs, changes: Mapping[str, Any]) -> None:
    """Set these fields, all or none. Raises LabError naming the field that cannot be set so."""
    try:
        changed = msgspec.convert({**msgspec.to_builtins(knobs), **changes}, Knobs)
    except msgspec.ValidationError as error:
        raise LabError(f"these knobs cannot be set: {error}; a GET shows all there are") from None
    for name in changes:
        setattr(knobs, name, getattr(changed, name))


def read(content: bytes) -> Knobs:
    """From JSON; what is not named stays as it is by default."""
    try:
        return msgspec.json.decode(content, type=Knobs)
    except msgspec.DecodeError as error:
        raise LabError(f"the knobs are not to be read: {error}") from None
