"""The real cert-manager issues and renews the certificate, and no admission fails for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cryptography import x509

from certs.issue import Pair, is_issued_by, new_ca, new_leaf
from certs.rotation import certificates_in, pem_of
from dev.lab import binaries, install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from tests.cluster import cert_manager, workloads
from tests.cluster.certificates import (
    NAME,
    NAMESPACE,
    REPLICAS,
    SECRET,
    all_show,
    await_new_server,
    await_shown,
    held,
    late_kubelets,
    rotated,
    stored,
    succeeding_admissions,
    trusted,
)

pytestmark = pytest.mark.nightly

CA, LEAF, CORP, CAS = "drawbridge-webhook-ca", "drawbridge-webhook", "corp", "corp-cas"
NOTHING_OF_FILES = {"existingSecret": "", "caBundle": ""}
SERVERS = {"replicaCount": REPLICAS}
OWN = SERVERS | {"certs": {"mode": "cert-manager", **NOTHING_OF_FILES}}
ISSUED_BY_CORP = {"issuerRef": {"name": CORP}, "caSecret": CAS}
SELF_MANAGED = SERVERS | {
    "certs": {"mode": "self-managed", **NOTHING_OF_FILES, "selfManaged": {"overlap": "5s"}},
    "controllers": {"leaseDuration": "6s"},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    # The first time it builds them, which takes minutes: no lab need wait for that.
    binaries.ensure(*cert_manager.OPTIONS)
    with (
        running(chart=False, kwok_nodes=0, nodes=2) as up,
        cert_manager.running(up, tmp_path_factory.mktemp("cert-manager")),
    ):
        install.install_chart(up, OWN)
        yield up


@pytest.fixture(scope="module")
def namespace(lab: Lab) -> str:
    return workloads.reserved_namespace(lab.client, "cert-manager-load")


def changed(lab: Lab, secret: str, change: Callable[[], object]) -> x509.Certificate:
    """What *secret* holds after that."""
    before = stored(lab, secret)
    change()
    lab.wait(lambda: stored(lab, secret) not in ([], before), 90, f"{secret} to change")
    return stored(lab, secret)[0]


def renewed(lab: Lab, certificate: str, secret: str) -> x509.Certificate:
    return changed(lab, secret, lambda: cert_manager.renew(lab, certificate))


def await_trust(lab: Lab, *authorities: x509.Certificate) -> None:
    def are_trusted() -> bool:
        found = trusted(lab)
        return bool(found) and all(each == [*authorities] for each in found)

    lab.wait(are_trusted, 90, "all API servers to trust these CAs and no others")


def assert_issued(leaf: x509.Certificate, by: x509.Certificate) -> None:
    leaf.verify_directly_issued_by(by)


def cert_manager_with(**more: Any) -> dict[str, Any]:
    return install.merged(OWN, {"certs": {"certManager": more}})


def upgrade(lab: Lab, certs: dict[str, Any], *options: str) -> None:
    """Without a wait for pods, and with the values that are."""
    command = ["upgrade", install.RELEASE, str(install.CHART), "--namespace", NAMESPACE, "--reuse-values"]
    lab.helm(*command, *options, "--values", "-", stdin=yaml.safe_dump({"certs": certs}))


def authority() -> Pair:
    now = datetime.now(UTC)
    return new_ca("corp", now - timedelta(hours=1), now + timedelta(days=300))


def test_renewals_of_the_leaf_and_of_the_ca_cost_no_admission(lab: Lab, namespace: str) -> None:
    [old], first = stored(lab, CA), await_shown(lab)
    with succeeding_admissions(lab, namespace) as admissions:
        second = renewed(lab, LEAF, SECRET)
        assert await_shown(lab) == second
        admissions.go_on()
        with late_kubelets(lab):
            new = renewed(lab, CA, CA)
            third = renewed(lab, LEAF, SECRET)
            await_trust(lab, new)
            # All servers show what the old CA signed, and the new one alone is trusted.
            admissions.go_on()
            lab.wait(lambda: all_show(lab, second), 60, "all servers to be seen to show it")
        assert await_shown(lab) == third
        await_new_server(lab)
        admissions.go_on()

    assert len({first, second, third}) == 3
    assert new != old
    assert new.public_key() == old.public_key()
    assert new.not_valid_after_utc > third.not_valid_after_utc


def test_an_issuer_of_the_operators_own_takes_over_and_changes_its_key_at_no_cost(
    lab: Lab, namespace: str
) -> None:
    [own], one, other = stored(lab, CA), authority(), authority()
    [first], [second] = certificates_in(one.certificate), certificates_in(other.certificate)
    cert_manager.put_authority(lab, CORP, one)
    cert_manager.put_trusted(lab, CAS, own, first)
    with succeeding_admissions(lab, namespace) as admissions:
        install.upgrade(lab, cert_manager_with(caSecret=CAS))
        await_trust(lab, own, first)
        changed(lab, SECRET, lambda: install.upgrade(lab, cert_manager_with(**ISSUED_BY_CORP)))
        assert_issued(await_shown(lab), first)
        admissions.go_on()
        cert_manager.put_trusted(lab, CAS, first, second)
        await_trust(lab, first, second)
        cert_manager.put_authority(lab, CORP, other)
        with late_kubelets(lab):
            renewed(lab, LEAF, SECRET)
            admissions.go_on()
        assert_issued(await_shown(lab), second)
        cert_manager.put_trusted(lab, CAS, second)
        await_trust(lab, second)
        admissions.go_on()


def test_the_controllers_take_over_from_cert_manager_at_no_cost(lab: Lab, namespace: str) -> None:
    before = held(lab)
    with succeeding_admissions(lab, namespace) as admissions:
        install.upgrade(lab, SELF_MANAGED)
        lab.wait(lambda: rotated(lab, before), 90, "the controllers to issue a certificate")
        await_shown(lab)
        admissions.go_on()


def test_an_issuer_takes_over_from_the_controllers_at_no_cost_when_all_is_trusted(
    lab: Lab, namespace: str
) -> None:
    ca = authority()
    [corp] = certificates_in(ca.certificate)
    known = [*stored(lab, SECRET, "ca.crt"), corp]
    cert_manager.put_authority(lab, CORP, ca)
    cert_manager.put_trusted(lab, CAS, *known)
    with succeeding_admissions(lab, namespace) as admissions:
        with late_kubelets(lab):
            upgrade(lab, {"mode": "cert-manager", "certManager": ISSUED_BY_CORP})
            await_trust(lab, *known)
            admissions.go_on()
        lab.wait(lambda: is_issued_by(pem_of(stored(lab)), corp), 90, "a certificate of the issuer")
        await_shown(lab)
        admissions.go_on()


def test_files_take_over_at_no_cost_with_forced_conflicts_and_the_trusted_cas(
    lab: Lab, namespace: str
) -> None:
    ca, now = authority(), datetime.now(UTC)
    leaf = new_leaf(ca, [NAME], [], now - timedelta(hours=1), now + timedelta(days=1))
    mine = cert_manager.secret("mine", {"tls.crt": leaf.certificate, "tls.key": leaf.key})
    lab.client.create(install.SECRETS, mine, NAMESPACE)
    known = [*certificates_in(ca.certificate), *trusted(lab)[0]]
    certs = {"mode": "files", "existingSecret": "mine", "caBundle": pem_of(known).decode()}

    with succeeding_admissions(lab, namespace) as admissions:
        upgrade(lab, certs, "--force-conflicts")
        await_trust(lab, *known)
        lab.wait(
            lambda: all_show(lab, *certificates_in(leaf.certificate)), 120, "all servers to show that leaf"
        )
        admissions.go_on()
