"""One call: its place in the rate, its deadline, what is repeated, and what its error means."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud import apis, errors
from cloud.caller import LONGEST, RateLimiter, Timing
from cloud.caller import delay_of as delay
from cloud.errors import CloudError, kind_of
from cloud.responses import Allocation, Done, Quotas
from tests.cloud_server import FakeTransport, calls, error, in_turn
from tests.fakes import FakeClock
from tests.metrics import sample

QUOTAS = {"QuotaSet": []}
TASK = {"TaskId": "7"}


def counted(api: apis.Api, result: str) -> float:
    return sample("drawbridge_cloud_calls_total", api=api.action, result=result)


def test_a_throttled_call_is_repeated_until_it_succeeds_whatever_it_does() -> None:
    throttled = [error(errors.Throttled)] * 4
    fake = FakeTransport(AssociateAddress=in_turn(*throttled, TASK))
    calls(fake, FakeClock()).call(apis.ASSOCIATE, {}, Done)
    assert len(fake.asked) == 5


@pytest.mark.parametrize(
    "api",
    [
        apis.ASSOCIATE,
        apis.DISASSOCIATE,
        apis.RELEASE,
        apis.MODIFY_BANDWIDTH,
        apis.MODIFY_TARGET_WEIGHTS,
    ],
    ids=lambda api: api.action,
)
@pytest.mark.parametrize("kind", [errors.Unavailable, errors.ServerFault])
def test_a_write_whose_outcome_is_unknown_is_not_sent_again(
    api: apis.Api, kind: type[errors.CloudError]
) -> None:
    fake = FakeTransport(**{api.action: in_turn(error(kind), TASK)})
    with pytest.raises(kind):
        calls(fake, FakeClock()).call(api, {}, Done)
    assert len(fake.asked) == 1


def test_a_call_ends_by_its_deadline_with_the_last_error() -> None:
    clock = FakeClock(0.0)
    fake = FakeTransport(DescribeAddressQuota=lambda params: error(errors.Throttled))
    with pytest.raises(errors.Throttled):
        calls(fake, clock, timeout=30.0).call(apis.DESCRIBE_QUOTA, {}, Quotas)
    assert 25 < clock() < 30
    assert len(fake.asked) == 11


def test_an_attempt_to_change_something_ends_before_another_process_may_lead() -> None:
    fake = FakeTransport(AssociateAddress=lambda params: TASK, DescribeAddressQuota=lambda params: QUOTAS)
    ours = calls(fake, FakeClock(), write=5.0)
    ours.call(apis.ASSOCIATE, {}, Done)
    ours.call(apis.DESCRIBE_QUOTA, {}, Quotas)
    assert fake.timeouts == [5, 10]


def test_a_call_that_would_wait_too_long_for_its_turn_is_throttled_by_ourselves() -> None:
    fake = FakeTransport(AssociateAddress=lambda params: TASK)
    clock = FakeClock(0.0)
    ours = calls(fake, clock, timeout=0.05)
    ours.call(apis.ASSOCIATE, {}, Done)
    with pytest.raises(errors.Throttled, match="share"):
        ours.call(apis.ASSOCIATE, {}, Done)
    assert len(fake.asked) == 1


def test_who_lost_the_lead_while_waiting_writes_nothing() -> None:
    class LeaseLostError(Exception):
        pass

    clock = FakeClock(0.0)

    def may_write() -> None:
        if clock() > 0:
            raise LeaseLostError

    fake = FakeTransport(
        AssociateAddress=in_turn(error(errors.Throttled), TASK), DescribeAddressQuota=lambda params: QUOTAS
    )
    ours = calls(fake, clock, may_write=may_write)
    with pytest.raises(LeaseLostError):
        ours.call(apis.ASSOCIATE, {}, Done)
    assert len(fake.asked) == 1
    ours.call(apis.DESCRIBE_QUOTA, {}, Quotas)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(errors.QuotaExceeded, id="the lost one may have taken the last"),
        pytest.param(errors.NotPermitted, id="permissions taken away in between"),
        pytest.param(errors.TagMissing, id="tags deleted in between"),
        pytest.param(errors.Rejected, id="refused for any other reason"),
    ],
)
@pytest.mark.parametrize("lost", [errors.Unavailable, errors.ServerFault])
def test_a_refusal_does_not_hide_that_an_earlier_attempt_may_have_been_carried_out(
    lost: type[errors.CloudError], later: type[errors.CloudError]
) -> None:
    fake = FakeTransport(AllocateAddresses=in_turn(error(lost), error(errors.Throttled), error(later)))
    with pytest.raises(lost) as caught:
        calls(fake, FakeClock()).call(apis.ALLOCATE, {}, Allocation)
    assert type(caught.value) is lost
    assert len(fake.asked) == 3


@pytest.mark.parametrize("later", [errors.TagExists, errors.StateConflict, errors.Gone, errors.TokenRefused])
def test_what_shows_the_outcome_of_an_earlier_attempt_is_raised(later: type[errors.CloudError]) -> None:
    fake = FakeTransport(CreateTags=in_turn(error(errors.Unavailable), error(later)))
    with pytest.raises(later):
        calls(fake, FakeClock()).call(apis.CREATE_TAGS, {}, Done)


def test_keys_are_at_hand_before_it_is_asked_whether_to_write() -> None:
    steps: list[str] = []
    fake = FakeTransport(AssociateAddress=lambda params: steps.append("sent") or TASK)
    ours = calls(
        fake, FakeClock(), may_write=lambda: steps.append("asked"), keys=lambda: steps.append("keys")
    )
    ours.call(apis.ASSOCIATE, {}, Done)
    assert steps == ["keys", "asked", "sent"]


def test_keys_are_those_of_the_moment_however_long_a_call_waits_for_its_turn() -> None:
    clock, fetched, sent = FakeClock(0.0), list[float](), list[float]()
    fake = FakeTransport(AssociateAddress=lambda params: sent.append(clock()) or TASK)
    ours = calls(fake, clock, keys=lambda: fetched.append(clock()))
    for _ in range(3):
        ours.call(apis.ASSOCIATE, {}, Done)
    assert sent[-1] > 0
    assert fetched == sent


def test_time_spent_on_keys_is_time_of_the_call() -> None:
    clock = FakeClock(0.0)
    fake = FakeTransport(AssociateAddress=lambda params: TASK)
    calls(fake, clock, timeout=12.0, keys=lambda: clock.advance(8)).call(apis.ASSOCIATE, {}, Done)
    assert fake.timeouts == [4]


def test_without_keys_nothing_is_sent_and_that_is_counted() -> None:
    def none() -> None:
        raise error(errors.NotConfigured)

    before = counted(apis.ASSOCIATE, "not_configured")
    fake = FakeTransport(AssociateAddress=lambda params: TASK)
    with pytest.raises(errors.NotConfigured):
        calls(fake, FakeClock(), keys=none).call(apis.ASSOCIATE, {}, Done)
    assert fake.asked == []
    assert counted(apis.ASSOCIATE, "not_configured") == before + 1


def test_a_call_is_not_sent_when_there_is_no_time_left_for_its_answer() -> None:
    clock = FakeClock(0.0)
    fake = FakeTransport(AssociateAddress=lambda params: TASK)
    with pytest.raises(errors.Throttled, match="OwnLimit"):
        calls(fake, clock, timeout=1.0, keys=lambda: clock.advance(0.95)).call(apis.ASSOCIATE, {}, Done)
    assert fake.asked == []


def test_a_call_that_would_not_be_sent_again_fails_with_what_the_cloud_said() -> None:
    clock = FakeClock(0.0)
    fake = FakeTransport(AssociateAddress=in_turn(error(errors.Throttled, "Theirs"), TASK))
    with pytest.raises(errors.Throttled, match="Theirs"):
        calls(fake, clock, timeout=1.0, keys=lambda: clock.advance(0.7)).call(apis.ASSOCIATE, {}, Done)
    assert clock() == pytest.approx(0.7)


def test_every_attempt_is_counted_by_its_result() -> None:
    results = ("throttled", "success", "already_bound")
    before = [counted(apis.ASSOCIATE, result) for result in results]
    fake = FakeTransport(AssociateAddress=in_turn(error(errors.Throttled), TASK, error(errors.AlreadyBound)))
    ours = calls(fake, FakeClock())
    ours.call(apis.ASSOCIATE, {}, Done)
    with pytest.raises(errors.AlreadyBound):
        ours.call(apis.ASSOCIATE, {}, Done)
    assert [counted(apis.ASSOCIATE, result) for result in results] == [count + 1 for count in before]


@pytest.mark.parametrize(
    ("kind", "blindly", "if_repeatable"),
    [
        pytest.param(errors.Throttled, True, True, id="not carried out"),
        pytest.param(errors.Unreachable, True, True, id="never sent"),
        pytest.param(errors.InProgress, True, True, id="an earlier one is under way"),
        pytest.param(errors.Unavailable, False, True, id="outcome unknown"),
        pytest.param(errors.ServerFault, False, True, id="failed somewhere"),
        pytest.param(errors.StateConflict, False, False, id="look again first"),
        pytest.param(errors.QuotaExceeded, False, False, id="a human's turn"),
        pytest.param(errors.NotPermitted, False, False, id="credentials"),
        pytest.param(errors.NotConfigured, False, False, id="no credentials"),
        pytest.param(errors.Rejected, False, False, id="our mistake"),
    ],
)
def test_only_what_cannot_happen_twice_is_repeated(
    kind: type[CloudError], blindly: bool, if_repeatable: bool
) -> None:
    for repeatable, expected in ((False, blindly), (True, if_repeatable)):
        assert (delay(error(kind), 1, repeatable=repeatable, chance=0) is not None) is expected


def test_delays_double_up_to_a_longest() -> None:
    failure = error(errors.Throttled)
    delays = [delay(failure, attempt, repeatable=True, chance=1) for attempt in (1, 2, 3, 4, 5, 6, 5000)]
    assert delays == [0.25, 0.5, 1, 2, 4, LONGEST, LONGEST]


def limits(clock: FakeClock, share: float = 1.0) -> RateLimiter:
    return RateLimiter(share, Timing(clock, clock.advance))


@given(pauses=st.lists(st.floats(0, 2), max_size=60), share=st.floats(0.1, 1))
def test_no_second_however_cut_has_more_than_the_documented_calls(pauses: list[float], share: float) -> None:
    clock = FakeClock(0.0)
    ours = limits(clock, share)
    turns = []
    for pause in pauses:
        clock.advance(pause)
        ours.wait(apis.ALLOCATE, float("inf"))
        turns.append(clock())
    # A microsecond less than a second: what sums of floats may be off by.
    counts = [bisect_left(turns, start + 1 - 1e-6) - number for number, start in enumerate(turns)]
    assert max(counts, default=0) <= apis.ALLOCATE.rate


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param("AddressQuotaLimitExceeded", errors.QuotaExceeded, id="20 addresses"),
        pytest.param("LimitExceeded.TagValue", errors.QuotaExceeded, id="tag values"),
        pytest.param("FailedOperation.BalanceInsufficient", errors.QuotaExceeded, id="no money"),
        pytest.param("RequestLimitExceeded", errors.Throttled, id="too fast"),
        pytest.param("LimitExceeded.ActionLimited", errors.Throttled, id="too fast, though named a limit"),
        pytest.param("AuthFailure.SignatureExpire", errors.NotPermitted, id="clock"),
        pytest.param("InternalError.Unforeseen", errors.ServerFault, id="fault of a new kind"),
        pytest.param("FailedOperation", errors.ServerFault, id="something failed"),
        pytest.param("OperationDenied.MutexTaskRunning", errors.StateConflict, id="task running"),
        pytest.param("DesOperation.MutexTaskRunning", errors.StateConflict, id="the same, undocumented"),
        pytest.param("InvalidInstanceId.AlreadyBindEip", errors.AlreadyBound, id="has an EIP"),
        pytest.param("InvalidAddressId.NotFound", errors.Gone, id="no such address"),
        pytest.param("ResourceNotFound.TagNonExist", errors.Gone, id="no such tag"),
        pytest.param("UnsupportedOperation", errors.Rejected, id="a family whose members differ"),
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
