"""The leader issues, injects and tells; another one goes on where it was."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from certs.issue import check, is_issued_by
from certs.rotation import (
    MOST_TRUSTED,
    NOTHING,
    Held,
    Rules,
    bundles_in,
    certificates_in,
    data_with,
    held_in,
    pem_of,
    with_bundle,
)
from controllers.certificates.controller import CONFIGURATIONS, RETRY_AFTER, SECRETS, rules
from dev.fake_api import Request
from kube.client import Resource
from kube.errors import AlreadyExists, Conflict, Forbidden, Unreachable
from settings import CertsSettings
from tests.certificates import (
    NAME,
    NAMESPACE,
    RULES,
    SECOND,
    SECRET,
    Cluster,
    Moment,
    authority,
    leaf,
    reconciler,
)
from tests.fakes import FakeRecorder
from tests.metrics import sample

OVERLAP, DUE = int(RULES.overlap.total_seconds()), 85
"""Seconds; at DUE the first CA is replaced."""


class World:
    def __init__(self) -> None:
        self.cluster, self.moment, self.recorder = Cluster(), Moment(), FakeRecorder()
        self.cluster.register(webhooks=2)
        self.store, self.reconciler = reconciler(self.cluster, self.moment, self.recorder)

    def rest(self) -> float:
        """Work until there is nothing to do; the seconds until the next look."""
        while (pause := self.reconciler.reconcile("")) == 0:
            pass
        return pause

    @property
    def held(self) -> Held:
        return held_in(self.cluster.data)

    @property
    def bundles(self) -> set[bytes]:
        found = [self.cluster.configuration(each) or {} for each in CONFIGURATIONS]
        return {bundle for each in found for bundle in bundles_in(each)}

    def live(self, until: int) -> None:
        """Work each second until then."""
        self.rest()
        while self.moment.seconds < until:
            self.moment.seconds += 1
            self.rest()

    def follow(self) -> None:
        """By another process."""
        self.store, self.reconciler = reconciler(self.cluster, self.moment, self.recorder)

    def secret(self) -> dict[str, Any]:
        found = self.cluster.secret()
        assert found is not None
        return found

    def configuration(self, which: tuple[Resource, str]) -> dict[str, Any]:
        found = self.cluster.configuration(which)
        assert found is not None
        return found

    def problem(self) -> str | None:
        """Why the leaf could not be served to those who trust what all webhooks trust."""
        [bundle] = self.bundles
        return check(self.held.leaf, certificates_in(bundle)[0], NAME, self.moment.now())


@pytest.fixture
def world() -> World:
    return World()


def counted(kind: str) -> float:
    return sample("drawbridge_certificates_issued_total", kind=kind)


def ends(kind: str) -> float:
    return sample("drawbridge_certificate_not_after_timestamp_seconds", kind=kind)


def test_from_nothing_there_is_soon_a_certificate_that_everyone_trusts(world: World) -> None:
    before = counted("ca"), counted("leaf")

    assert world.rest() == RULES.overlap.total_seconds() / 2
    assert world.problem() is None
    assert world.recorder.reasons == ["CertificateIssued"] * 2
    assert world.recorder.about == [SECRET] * 2
    assert (counted("ca"), counted("leaf")) == (before[0] + 1, before[1] + 1)
    assert ends("ca") == (world.moment.now() + RULES.ca_validity).timestamp()
    assert ends("leaf") == (world.moment.now() + RULES.leaf_validity).timestamp()


def test_an_empty_secret_of_the_chart_is_filled_and_keeps_what_is_not_ours(world: World) -> None:
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    world.cluster.put(SECRETS, {"metadata": {"name": SECRET, "labels": labels}, "type": "Opaque"})

    world.rest()
    secret = world.secret()
    assert (secret["metadata"]["labels"], secret["type"]) == (labels, "Opaque")
    assert world.problem() is None
    assert world.recorder.reasons == ["CertificateIssued"] * 2


def test_a_lost_secret_comes_back_as_a_part_of_the_release(world: World) -> None:
    helm = {"meta.helm.sh/release-name": "drawbridge", "meta.helm.sh/release-namespace": NAMESPACE}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    for each in CONFIGURATIONS:
        found = world.configuration(each)
        versions = {
            "app.kubernetes.io/version": "1",
            "helm.sh/chart": "drawbridge-1",
        }  # an upgrade changes them
        marks = {"labels": labels | versions, "annotations": helm | {"another": "x"}}
        world.cluster.put(each[0], found | {"metadata": found["metadata"] | marks})

    world.rest()
    metadata = world.secret()["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == (labels, helm)


def test_without_a_webhook_configuration_there_is_a_certificate_too(world: World) -> None:
    world.cluster.unregister()

    world.rest()
    assert check(world.held.leaf, world.held.authorities[0], NAME, world.moment.now()) is None


@pytest.mark.parametrize("secret", ["is there", "went with cert-manager's Certificate"])
def test_what_cert_manager_left_is_trusted_until_it_has_ended(world: World, secret: str) -> None:
    theirs, ca = authority(end=50 * SECOND)
    left = Held((theirs,), b"", leaf(ca))
    for each in CONFIGURATIONS:
        world.cluster.put(each[0], with_bundle(world.configuration(each), pem_of([theirs])))
    if secret == "is there":
        world.cluster.put(SECRETS, {"metadata": {"name": SECRET}, "data": data_with(left, {})})

    world.rest()
    [bundle] = world.bundles
    assert certificates_in(bundle) == [world.held.signer, theirs]
    assert world.held.leaf == (left.leaf if secret == "is there" else NOTHING)
    world.moment.seconds = int(RULES.overlap.total_seconds())
    world.rest()
    assert world.problem() is None
    world.moment.seconds = 50 + int(RULES.overlap.total_seconds())
    world.rest()
    assert theirs not in certificates_in(*world.bundles)


def test_a_certificate_of_ours_is_not_called_one_of_cert_manager(world: World) -> None:
    """Else cert-manager, should it take over again, would leave it there and have another CA trusted."""
    annotations = {"cert-manager.io/issuer-name": "corp", "meta.helm.sh/release-name": "drawbridge"}
    world.cluster.put(SECRETS, {"metadata": {"name": SECRET, "annotations": annotations}})

    world.rest()
    metadata = world.secret()["metadata"]
    assert metadata["annotations"] == {"meta.helm.sh/release-name": "drawbridge"}


@pytest.mark.parametrize(
    ("type", "left"),
    [("Opaque", {"ca.crt", "ca.key"}), ("kubernetes.io/tls", {"ca.crt", "ca.key", "tls.crt", "tls.key"})],
)
def test_a_damaged_secret_is_replaced_with_an_event(world: World, type: str, left: set[str]) -> None:  # noqa: A002
    world.rest()
    secret = world.secret()
    spoilt = dict.fromkeys(secret["data"], b64encode(b"x").decode())
    world.cluster.put(SECRETS, secret | {"data": spoilt, "type": type})
    world.recorder.events.clear()

    world.rest()
    assert world.recorder.reasons == ["CertificateSecretReplaced"]
    assert world.cluster.data.keys() == left
    world.moment.seconds += 6
    world.rest()
    assert world.problem() is None


def test_a_secret_that_is_emptied_again_and_again_fills_no_webhook_configuration(world: World) -> None:
    for _ in range(MOST_TRUSTED + 1):
        world.rest()
        world.cluster.put(SECRETS, world.secret() | {"data": {}})
    world.rest()
    world.moment.seconds += OVERLAP
    world.rest()

    [bundle] = world.bundles
    assert len(certificates_in(bundle)) == MOST_TRUSTED
    assert world.problem() is None


def test_a_ca_whose_key_is_taken_out_gets_a_successor_beside_it(world: World) -> None:
    world.rest()
    secret, before = world.secret(), world.held
    del secret["data"]["ca.key"]
    world.cluster.put(SECRETS, secret)
    world.recorder.events.clear()

    world.rest()
    assert world.recorder.reasons == ["CertificateSecretReplaced"]
    assert (world.held.authorities[1:], world.held.leaf) == (before.authorities, before.leaf)
    world.live(OVERLAP)
    assert world.problem() is None
    assert world.held.leaf != before.leaf


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        pytest.param(Conflict(409, "Conflict", "changed"), [], id="another client was faster"),
        pytest.param(Unreachable("no route"), ["CertificateNotKept"], id="no API server"),
        pytest.param(Forbidden(403, "Forbidden", "no"), ["CertificateNotKept"], id="no right"),
    ],
)
def test_what_was_not_written_is_tried_again_soon(world: World, error: Exception, reasons: list[str]) -> None:
    world.cluster.before_write = failing(error)

    assert world.reconciler.reconcile("") == RETRY_AFTER
    assert world.recorder.reasons == reasons
    world.cluster.before_write = lambda: None
    world.rest()
    assert world.problem() is None


def test_one_configuration_that_cannot_be_written_keeps_no_other_and_is_named(world: World) -> None:
    def refuse(call: Request) -> None:
        if call.method != "GET" and call.path.endswith("/validatingwebhookconfigurations/drawbridge"):
            raise Forbidden(403, "Forbidden", "a policy refuses it")

    world.cluster.api.fault = refuse
    while world.reconciler.reconcile("") == 0:
        pass
    first, *others = (bundles_in(world.configuration(each)) for each in CONFIGURATIONS)

    assert (any(first), all(map(all, others))) == (False, True)
    assert "validatingwebhookconfigurations/drawbridge:" in world.recorder.events[-1][1]
    world.cluster.api.fault = lambda call: None
    world.rest()
    assert world.problem() is None


def forget_a_bundle(world: World) -> None:
    """As a person who applies the chart again; it is written again at once."""
    which = CONFIGURATIONS[0]
    world.cluster.put(which[0], with_bundle(world.configuration(which), b""))
    world.rest()


@pytest.mark.parametrize(
    ("meanwhile", "waits"),
    [
        pytest.param(lambda world: None, OVERLAP, id="all goes well"),
        pytest.param(World.follow, 2 * OVERLAP - 1, id="another process leads, which counts for itself"),
        pytest.param(forget_a_bundle, 2 * OVERLAP - 1, id="a bundle is lost"),
    ],
)
def test_a_new_ca_signs_when_all_webhooks_have_trusted_it_for_an_overlap(
    world: World, meanwhile: Callable[[World], None], waits: int
) -> None:
    world.live(DUE - 1)
    [before] = world.held.authorities
    world.live(DUE + OVERLAP - 1)
    meanwhile(world)

    world.live(DUE + waits - 1)
    assert is_issued_by(world.held.leaf.certificate, before)
    world.live(DUE + waits)
    assert world.held.signer is not None
    assert is_issued_by(world.held.leaf.certificate, world.held.signer)
    assert world.held.authorities == (world.held.signer, before)


def test_a_leader_that_acts_on_what_it_saw_before_another_one_acted_changes_nothing(world: World) -> None:
    _, other = reconciler(world.cluster, world.moment)
    refused = 0
    for now in (0, 26, 52, 78, DUE, DUE + OVERLAP):
        world.moment.seconds = now
        seen = world.store.read()
        while other.reconcile("") == 0:
            after = world.store.read()
            try:
                world.reconciler.act(seen)
            except (Conflict, AlreadyExists):
                refused += 1
            seen = world.store.read()
            assert seen == after
    assert refused == 8  # of 9 writes: it has not seen for long enough that the new CA is trusted


def test_an_overlap_of_next_to_nothing_keeps_no_api_server_busy(world: World) -> None:
    _, at_work = reconciler(world.cluster, world.moment, rules=replace(RULES, overlap=SECOND / 1000))
    while (pause := at_work.reconcile("")) == 0:
        pass

    assert pause >= 1


def test_the_settings_are_followed() -> None:
    settings = CertsSettings.model_validate({"serviceName": "gate", "selfManaged": {"overlap": "2m"}})

    assert rules(settings, "system") == Rules(
        "gate.system.svc",
        ca_validity=timedelta(days=365),
        leaf_validity=timedelta(days=90),
        renew_before=timedelta(days=30),
        overlap=timedelta(minutes=2),
    )
