"""Whatever goes wrong between us and Tencent Cloud is one of these errors, named for what to do about it."""

from __future__ import annotations

import re


class CloudError(Exception):
    """*code* and *message* are the cloud's own, *request_id* is what its support asks for."""

    def __init__(self, code: str, message: str, *, action: str, request_id: str = "") -> None:
        said_by = f", request {request_id}" if request_id else ""
        super().__init__(f"{action}: {message} ({code}{said_by})")
        self.code, self.message, self.action, self.request_id = code, message, action, request_id

    @classmethod
    def result(cls) -> str:
        """The name of its kind in metrics, for example not_permitted."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


class Unavailable(CloudError):
    """No usable answer came: the call may or may not have been carried out."""


class Unreachable(Unavailable):
    """No connection: it was not carried out."""


class ServerFault(CloudError):
    """The cloud failed within: it may or may not have been carried out."""


class Throttled(CloudError):
    """Too many calls: it was not carried out."""


class QuotaExceeded(CloudError):
    """No more of it until a human raises a limit, pays, or a day is over."""


class NotPermitted(CloudError):
    """Permissions, credentials, clock or an account that does not have this product."""


class NotConfigured(NotPermitted):
    """This process has no credentials or no region."""


class StateConflict(CloudError):
    """Not in the present state: look again."""


class InProgress(StateConflict):
    """An earlier call with the same ClientToken is still being carried out."""


class AlreadyBound(CloudError):
    """The instance has an address, or can have none of this type: look again."""


class Gone(CloudError):
    """No such address, instance, tag, load balancer or listener."""


class TagMissing(CloudError):
    """Allocation names a tag that must be created first."""


class TagExists(CloudError):
    """The tag to create is there."""


class TokenRefused(CloudError):
    """The ClientToken is spent: allocate with another one."""


class Blocked(CloudError):
    """The address is blocked, in arrears or protected."""


class Rejected(CloudError):
    """Anything else: a mistake of ours or in the configuration."""


ITEM_REFUSED = (Gone, StateConflict, Blocked, Rejected, NotPermitted, QuotaExceeded)
"""What the cloud says of one item, and means the whole batch."""
PERHAPS_FOR_ALL = (NotPermitted, QuotaExceeded)
"""What may be true of one item, by a policy or a limit, or of all."""


class RetryAfter(Exception):
    """*cause* stands in the way, and another attempt within *seconds* would not help."""

    def __init__(self, cause: Exception, seconds: float) -> None:
        super().__init__(str(cause))
        self.cause, self.seconds = cause, seconds


NO_BALANCE = "FailedOperation.BalanceInsufficient"
_CODES: dict[type[CloudError], tuple[str, ...]] = {
    Throttled: ("LimitExceeded.ActionLimited",),
    NotPermitted: (
        "FailedOperation.InvalidRegion",
        "InvalidAccount.NotSupported",
        "IpInBlacklist",
        "IpNotInWhitelist",
        "UnsupportedOperation.InvalidAccount",
        "UnsupportedOperation.OfflineChargeType",
        "UnsupportedOperation.UnsupportedRegion",
        "UnsupportedRegion",
    ),
    QuotaExceeded: (NO_BALANCE,),
    # The bare word says no more than that something failed.
    ServerFault: ("FailedOperation", "ServiceUnavailable"),
    StateConflict: (
        "FailedOperation.InvalidLBStatus",
        "FailedOperation.ResourceInOperating",
        "FailedOperation.ResourceTagProcessing",
        "FailedOperation.TagAttachedResource",
        "FailedOperation.TaskFailed",
        "InvalidAddressIdStatus.NotPermit",
        "InvalidAddressState",
        "InvalidParameterValue.InvalidInstanceState",
        "UnsupportedOperation.AddressStatusNotPermit",
        "UnsupportedOperation.InstanceStateNotSupported",
        "UnsupportedOperation.InstanceStatusNotPermit",
    ),
    InProgress: ("UnsupportedOperation.IdempotentProcessing",),
    TokenRefused: (
        "UnsupportedOperation.DeliveryFailed",
        "UnsupportedOperation.IdempotentParameterMismatch",
    ),
    AlreadyBound: (
        "InvalidParameterValue.InstanceDoesNotSupportAnycast",
        "InvalidParameterValue.InstanceHasWanIP",
    ),
    Gone: (
        "InvalidParameter.LBIdNotFound",
        "InvalidParameter.ListenerIdNotFound",
        "InvalidParameter.LocationNotFound",
        "InvalidAddressId.NotFound",
        "InvalidInstanceId.Malformed",  # it cannot be the id of anything
        "InvalidInstanceId.NotFound",
        "InvalidParameterValue.AddressIdMalformed",
        "InvalidParameterValue.AddressNotFound",
        "InvalidParameterValue.InstanceIdMalformed",
    ),
    TagMissing: (
        "InvalidParameterValue.InvalidTag",
        "InvalidParameterValue.TagKeyNotExists",
        "InvalidParameterValue.TagNotExisted",
        "InvalidParameterValue.TagValNotExists",
        "InvalidTag.NotExisted",
    ),
    TagExists: ("ResourceInUse.TagDuplicate",),
    Blocked: (
        "InvalidAddressId.Blocked",
        "InvalidAddressIdState.InArrears",
        "OperationDenied.AddressDeletionProtectionEnabled",
        "OperationDenied.AddressInArrears",
        "UnsupportedOperation.UnpaidOrderAlreadyExists",
    ),
}
_BY_CODE = {code: kind for kind, codes in _CODES.items() for code in codes}
_BY_FAMILY: dict[str, type[CloudError]] = {
    "AddressQuotaLimitExceeded": QuotaExceeded,
    "AuthFailure": NotPermitted,
    "InternalError": ServerFault,
    "InternalServerError": ServerFault,
    "LimitExceeded": QuotaExceeded,
    "RequestLimitExceeded": Throttled,
    "ResourceInsufficient": QuotaExceeded,
    "ResourceNotFound": Gone,
    "ResourceUnavailable": StateConflict,
    "UnauthorizedOperation": NotPermitted,
}
"""By what stands before the first dot: kinds that the cloud subdivides further from time to time."""
_BY_DETAIL: dict[str, type[CloudError]] = {
    "AlreadyBindEip": AlreadyBound,
    "MutexTaskRunning": StateConflict,
}
"""By what stands after the dot: details that were seen under several families, not all of them documented."""


def kind_of(code: str) -> type[CloudError]:
    """The class for an error code, after the tables of the SDK and what its users have seen beyond them."""
    family, _, detail = code.partition(".")
    return _BY_CODE.get(code) or _BY_DETAIL.get(detail) or _BY_FAMILY.get(family) or Rejected
