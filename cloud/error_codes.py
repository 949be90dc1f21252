"""Which of our errors a code of the cloud is: its own table first, then what the code begins or ends with."""

from __future__ import annotations

from cloud import errors
from cloud.errors import CloudError

_CODES: dict[type[CloudError], tuple[str, ...]] = {
    errors.Throttled: ("LimitExceeded.ActionLimited",),
    errors.NotPermitted: (
        "FailedOperation.InvalidRegion",
        "InvalidAccount.NotSupported",
        "IpInBlacklist",
        "IpNotInWhitelist",
        "UnsupportedOperation.InvalidAccount",
        "UnsupportedOperation.OfflineChargeType",
        "UnsupportedOperation.UnsupportedRegion",
        "UnsupportedRegion",
    ),
    errors.QuotaExceeded: ("FailedOperation.BalanceInsufficient",),
    # The bare word says no more than that something failed.
    errors.ServerFault: ("FailedOperation", "ServiceUnavailable"),
    errors.StateConflict: (
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
    errors.InProgress: ("UnsupportedOperation.IdempotentProcessing",),
    errors.TokenRefused: (
        "UnsupportedOperation.DeliveryFailed",
        "UnsupportedOperation.IdempotentParameterMismatch",
    ),
    errors.AlreadyBound: (
        "InvalidParameterValue.InstanceDoesNotSupportAnycast",
        "InvalidParameterValue.InstanceHasWanIP",
    ),
    errors.Gone: (
        "InvalidAddressId.NotFound",
        "InvalidInstanceId.Malformed",  # it cannot be the id of anything
        "InvalidInstanceId.NotFound",
        "InvalidParameterValue.AddressIdMalformed",
        "InvalidParameterValue.AddressNotFound",
        "InvalidParameterValue.InstanceIdMalformed",
    ),
    errors.TagMissing: (
        "InvalidParameterValue.InvalidTag",
        "InvalidParameterValue.TagKeyNotExists",
        "InvalidParameterValue.TagNotExisted",
        "InvalidParameterValue.TagValNotExists",
        "InvalidTag.NotExisted",
    ),
    errors.TagExists: ("ResourceInUse.TagDuplicate",),
    errors.Blocked: (
        "InvalidAddressId.Blocked",
        "InvalidAddressIdState.InArrears",
        "OperationDenied.AddressDeletionProtectionEnabled",
        "OperationDenied.AddressInArrears",
        "UnsupportedOperation.UnpaidOrderAlreadyExists",
    ),
}
_BY_CODE = {code: kind for kind, codes in _CODES.items() for code in codes}
_BY_FAMILY: dict[str, type[CloudError]] = {
    "AddressQuotaLimitExceeded": errors.QuotaExceeded,
    "AuthFailure": errors.NotPermitted,
    "InternalError": errors.ServerFault,
    "InternalServerError": errors.ServerFault,
    "LimitExceeded": errors.QuotaExceeded,
    "RequestLimitExceeded": errors.Throttled,
    "ResourceInsufficient": errors.QuotaExceeded,
    "ResourceNotFound": errors.Gone,
    "ResourceUnavailable": errors.StateConflict,
    "UnauthorizedOperation": errors.NotPermitted,
}
"""By what stands before the first dot: kinds that the cloud subdivides further from time to time."""
_BY_DETAIL: dict[str, type[CloudError]] = {
    "AlreadyBindEip": errors.AlreadyBound,
    "MutexTaskRunning": errors.StateConflict,
}
"""By what stands after the dot: details that were seen under several families, not all of them documented."""


def kind_of(code: str) -> type[CloudError]:
    """The class for an error code, after the tables of the SDK and what its users have seen beyond them."""
    family, _, detail = code.partition(".")
    return _BY_CODE.get(code) or _BY_DETAIL.get(detail) or _BY_FAMILY.get(family) or errors.Rejected
