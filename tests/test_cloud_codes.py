"""The cloud's error codes as errors of ours."""

from __future__ import annotations

import pytest

from cloud import errors
from cloud.errors import CloudError, kind_of


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param("AddressQuotaLimitExceeded", errors.QuotaExceeded, id="20 addresses"),
        pytest.param("AddressQuotaLimitExceeded.DailyAllocate", errors.QuotaExceeded, id="40 a day"),
        pytest.param("LimitExceeded.TagValue", errors.QuotaExceeded, id="tag values"),
        pytest.param("FailedOperation.BalanceInsufficient", errors.QuotaExceeded, id="no money"),
        pytest.param("RequestLimitExceeded", errors.Throttled, id="too fast"),
        pytest.param("RequestLimitExceeded.UinLimitExceeded", errors.Throttled, id="too fast by account"),
        pytest.param("LimitExceeded.ActionLimited", errors.Throttled, id="too fast, though named a limit"),
        pytest.param("AuthFailure.SignatureExpire", errors.NotPermitted, id="clock"),
        pytest.param("AuthFailure.SecretIdNotFound", errors.NotPermitted, id="credentials"),
        pytest.param("UnauthorizedOperation.AnycastEip", errors.NotPermitted, id="whitelist"),
        pytest.param("UnauthorizedOperation", errors.NotPermitted, id="policy"),
        pytest.param("InternalError", errors.ServerFault, id="fault"),
        pytest.param("InternalError.Unforeseen", errors.ServerFault, id="fault of a new kind"),
        pytest.param("ServiceUnavailable", errors.ServerFault, id="out of service for now"),
        pytest.param("FailedOperation", errors.ServerFault, id="something failed"),
        pytest.param("IpNotInWhitelist", errors.NotPermitted, id="keys that are good elsewhere"),
        pytest.param("OperationDenied.MutexTaskRunning", errors.StateConflict, id="task running"),
        pytest.param("DesOperation.MutexTaskRunning", errors.StateConflict, id="the same, undocumented"),
        pytest.param("UnsupportedOperation.AddressStatusNotPermit", errors.StateConflict, id="status"),
        pytest.param("FailedOperation.TagAttachedResource", errors.StateConflict, id="tag in use"),
        pytest.param("UnsupportedOperation.IdempotentProcessing", errors.InProgress, id="token busy"),
        pytest.param("UnsupportedOperation.DeliveryFailed", errors.TokenRefused, id="token spent"),
        pytest.param(
            "UnsupportedOperation.IdempotentParameterMismatch", errors.TokenRefused, id="token reused"
        ),
        pytest.param("InvalidInstanceId.AlreadyBindEip", errors.AlreadyBound, id="has an EIP"),
        pytest.param("InvalidParameterValue.InstanceHasWanIP", errors.AlreadyBound, id="has a WanIP"),
        pytest.param("InvalidAddressId.NotFound", errors.Gone, id="no such address"),
        pytest.param("InvalidInstanceId.Malformed", errors.Gone, id="nothing could have this id"),
        pytest.param("ResourceNotFound.TagNonExist", errors.Gone, id="no such tag"),
        pytest.param("InvalidParameterValue.TagNotExisted", errors.TagMissing, id="tag not created"),
        pytest.param("ResourceInUse.TagDuplicate", errors.TagExists, id="tag there"),
        pytest.param("InvalidAddressId.Blocked", errors.Blocked, id="blocked"),
        pytest.param("OperationDenied.AddressInArrears", errors.Blocked, id="arrears"),
        pytest.param("InvalidAddressIdState.InArrears", errors.Blocked, id="arrears, of the older kind"),
        pytest.param("UnsupportedOperation", errors.Rejected, id="a family whose members differ"),
        pytest.param("UnknownParameter", errors.Rejected, id="our mistake"),
        pytest.param("", errors.Rejected, id="nothing"),
    ],
)
def test_a_code_is_the_error_that_says_what_to_do(code: str, kind: type[CloudError]) -> None:
    assert kind_of(code) is kind


def test_an_error_says_what_was_called_and_what_support_asks_for() -> None:
    error = errors.Gone(
        "InvalidAddressId.NotFound", "no such eip", action="ReleaseAddresses", request_id="r-7"
    )
    assert str(error) == "ReleaseAddresses: no such eip (InvalidAddressId.NotFound, request r-7)"


def test_metrics_name_an_error_in_words() -> None:
    assert (errors.NotPermitted.result(), errors.Gone.result()) == ("not_permitted", "gone")
