"""One call with all its waiting and repeating."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from cloud import apis, errors
from cloud.responses import Allocation, Done, Quotas
from tests.cloud_server import FakeTransport, calls, error, in_turn
from tests.fakes import FakeClock

QUOTAS = {"QuotaSet": []}
TASK = {"TaskId": "7"}


def counted(api: apis.Api, result: str) -> float:
    labels = {"api": api.action, "result": result}
    return REGISTRY.get_sample_value("drawbridge_cloud_calls_total", labels) or 0.0


def test_a_throttled_call_is_repeated_until_it_succeeds_whatever_it_does() -> None:
    throttled = [error(errors.Throttled)] * 4
    fake = FakeTransport(AssociateAddress=in_turn(*throttled, TASK))
    calls(fake, FakeClock()).call(apis.ASSOCIATE, {}, Done)
    assert len(fake.asked) == 5


@pytest.mark.parametrize("api", [apis.ASSOCIATE, apis.DISASSOCIATE, apis.RELEASE], ids=lambda api: api.action)
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


def test_no_attempt_may_take_longer_than_the_call_has_left() -> None:
    fake = FakeTransport(DescribeAddressQuota=lambda params: error(errors.Throttled))
    with pytest.raises(errors.Throttled):
        calls(fake, FakeClock(), timeout=12.0).call(apis.DESCRIBE_QUOTA, {}, Quotas)
    assert fake.timeouts[0] == 10
    assert fake.timeouts[-1] < 5


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


def test_a_read_fails_with_its_last_error() -> None:
    fake = FakeTransport(DescribeAddressQuota=in_turn(error(errors.Unavailable), error(errors.NotPermitted)))
    with pytest.raises(errors.NotPermitted):
        calls(fake, FakeClock()).call(apis.DESCRIBE_QUOTA, {}, Quotas)


def test_keys_are_at_hand_before_it_is_asked_whether_to_write() -> None:
    steps: list[str] = []
    fake = FakeTransport(AssociateAddress=lambda params: steps.append("sent") or TASK)
    ours = calls(
        fake, FakeClock(), may_write=lambda: steps.append("asked"), keys=lambda: steps.append("keys")
    )
    ours.call(apis.ASSOCIATE, {}, Done)
    assert steps == ["keys", "asked", "sent"]


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


def test_a_bug_is_not_counted_as_success() -> None:
    def broken(params: object) -> None:
        raise ZeroDivisionError

    before = counted(apis.ASSOCIATE, "success")
    with pytest.raises(ZeroDivisionError):
        calls(FakeTransport(AssociateAddress=broken), FakeClock()).call(apis.ASSOCIATE, {}, Done)
    assert counted(apis.ASSOCIATE, "success") == before


def test_every_attempt_is_counted_by_its_result() -> None:
    before = {result: counted(apis.ASSOCIATE, result) for result in ("throttled", "success", "already_bound")}
    fake = FakeTransport(AssociateAddress=in_turn(error(errors.Throttled), TASK, error(errors.AlreadyBound)))
    ours = calls(fake, FakeClock())
    ours.call(apis.ASSOCIATE, {}, Done)
    with pytest.raises(errors.AlreadyBound):
        ours.call(apis.ASSOCIATE, {}, Done)
    assert {result: counted(apis.ASSOCIATE, result) - count for result, count in before.items()} == {
        "throttled": 1,
        "success": 1,
        "already_bound": 1,
    }
