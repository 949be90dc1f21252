"""Certificates are what clients need them to be, and a server keeps to the last good pair."""

import errno
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.cert_watcher import AGAIN, ServingPair
from certs.issue import Pair, check, new_ca, new_leaf
from dev.lab.kubelet import volumes
from tests.factories import NOW
from tests.fakes import FakeClock
from tests.metrics import sample

NAME = "drawbridge-webhook.drawbridge.svc"
YEARS = timedelta(days=20 * 365)
"""The handshakes of these tests ask the clock of OpenSSL, which is not NOW."""
CA = new_ca("Drawbridge", NOW - YEARS, NOW + 30 * YEARS)


def leaf(*, ca: Pair = CA, end: datetime = NOW + YEARS) -> Pair:
    return new_leaf(ca, [NAME, "localhost"], ["127.0.0.1", "::1"], NOW - YEARS, end)


LEAF = leaf()


def handshake(server: ssl.SSLContext, name: str, ca: Pair = CA) -> ssl.SSLObject:
    """What the client knows after a handshake in memory; raises ssl.SSLError when it refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cadata=ca.certificate.decode())
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, serving, client, serving):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client


def write(directory: Path, pair: Pair) -> ServingPair:
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)
    return ServingPair(directory / "tls.crt", directory / "tls.key")


@pytest.mark.parametrize("name", [NAME, "localhost", "127.0.0.1", "::1"])
def test_a_leaf_serves_each_of_its_names_to_those_who_trust_its_authority(tmp_path: Path, name: str) -> None:
    client = handshake(write(tmp_path, LEAF).context(), name)
    assert client.selected_alpn_protocol() == "http/1.1"


def test_a_client_refuses_another_name_and_another_authority(tmp_path: Path) -> None:
    context = write(tmp_path, LEAF).context()
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(context, "elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(context, NAME, new_ca("Drawbridge", NOW - YEARS, NOW + YEARS))


def test_old_tls_is_not_spoken(tmp_path: Path) -> None:
    assert write(tmp_path, LEAF).context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_no_session_ticket_is_made_that_an_api_server_does_not_use(tmp_path: Path) -> None:
    client = handshake(write(tmp_path, LEAF).context(), NAME)
    with pytest.raises(ssl.SSLWantReadError):
        client.read()  # takes in what follows the handshake
    assert client.version() == "TLSv1.3"
    assert client.session is None or not client.session.has_ticket


NOT_OURS = "the certificate is not one of this authority: "
CHECKS = {
    "good": (LEAF, CA, NAME, NOW, None),
    "name": (LEAF, CA, "x", NOW, f"the certificate is for {NAME}, localhost, not for x"),
    "ended": (LEAF, CA, NAME, NOW + 2 * YEARS, f"the certificate ended on {(NOW + YEARS).isoformat()}"),
    "not begun": (
        LEAF,
        CA,
        NAME,
        NOW - 2 * YEARS,
        f"the certificate begins on {(NOW - YEARS).isoformat()} only",
    ),
    "authority ended": (
        *(leaf(end=NOW + 90 * YEARS), CA, NAME, NOW + 40 * YEARS),
        f"the authority ended on {(NOW + 30 * YEARS).isoformat()}",
    ),
    "torn pair": (
        *(Pair(LEAF.certificate, leaf().key), CA, NAME, NOW),
        "the private key belongs to another certificate",
    ),
    "another authority of the same name": (
        *(LEAF, new_ca("Drawbridge", NOW, NOW + YEARS), NAME, NOW),
        f"{NOT_OURS}its signature does not verify",
    ),
    "another authority": (LEAF, new_ca("Other", NOW, NOW + YEARS), NAME, NOW, NOT_OURS),
    "empty": (Pair(b"", b""), CA, NAME, NOW, NOT_OURS),
}


@pytest.mark.parametrize(("pair", "ca", "name", "at", "problem"), CHECKS.values(), ids=CHECKS)
def test_a_check_says_why_a_pair_cannot_serve(
    pair: Pair, ca: Pair, name: str, at: datetime, problem: str | None
) -> None:
    found = check(pair, x509.load_pem_x509_certificate(ca.certificate), name, at)
    assert found == problem or (problem == NOT_OURS and found and found.startswith(problem))


def test_a_leaf_needs_a_name() -> None:
    with pytest.raises(ValueError, match="at least one DNS name or IP address"):
        new_leaf(CA, [], [], NOW, NOW + YEARS)


def test_a_long_first_name_is_cut_in_the_subject_only(tmp_path: Path) -> None:
    name = "a" * 60 + ".a-long-namespace.svc"
    pair = new_leaf(CA, [name], [], NOW - YEARS, NOW + YEARS)
    assert handshake(write(tmp_path, pair).context(), name)


def reloads(result: str) -> float:
    return sample("drawbridge_serving_cert_reload_total", result=result)


def test_an_unchanged_pair_is_read_once(tmp_path: Path) -> None:
    serving, before = write(tmp_path, LEAF), reloads("success")
    assert serving.context() is serving.context()
    assert reloads("success") == before + 1
    assert sample("drawbridge_serving_cert_not_after_timestamp_seconds") == (NOW + YEARS).timestamp()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda crt, key: crt.write_bytes(leaf().certificate), id="only the certificate is new"),
        pytest.param(lambda crt, key: key.write_bytes(leaf().key), id="only the key is new"),
        pytest.param(lambda crt, key: crt.write_bytes(b""), id="the certificate is empty"),
        pytest.param(lambda crt, key: key.write_bytes(LEAF.key[:50]), id="the key is cut off"),
        pytest.param(lambda crt, key: crt.unlink(), id="the certificate is gone"),
    ],
)
def test_the_last_good_pair_is_served_until_there_is_a_better_one(tmp_path: Path, spoil: object) -> None:
    serving = write(tmp_path, LEAF)
    good, before = serving.context(), reloads("failure")
    spoil(tmp_path / "tls.crt", tmp_path / "tls.key")  # type: ignore[operator]
    assert [serving.context() is good for _ in range(3)] == [True] * 3
    assert reloads("failure") == before + 1
    write(tmp_path, leaf())
    assert serving.context() is not good


def mounted(pair: Pair) -> dict[str, bytes]:
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def test_a_mounted_secret_is_followed_through_the_links_that_a_kubelet_moves(tmp_path: Path) -> None:
    other = new_ca("Other", NOW - YEARS, NOW + YEARS)
    volumes.write(tmp_path, mounted(LEAF))
    serving = ServingPair(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert handshake(serving.context(), NAME)

    volumes.write(tmp_path, mounted(leaf(ca=other)))
    assert handshake(serving.context(), NAME, other)
    volumes.write(tmp_path, mounted(Pair(LEAF.certificate, leaf().key)))
    assert handshake(serving.context(), NAME, other)
    volumes.write(tmp_path, mounted(leaf()))
    assert handshake(serving.context(), NAME)


def test_without_any_good_pair_there_is_an_error_that_names_the_files(tmp_path: Path) -> None:
    serving = write(tmp_path, Pair(LEAF.certificate, leaf().key))
    with pytest.raises(ValueError, match=r"tls\.crt and .*tls\.key are not a pair"):
        serving.context()
    with pytest.raises(FileNotFoundError, match=r"absent"):
        ServingPair(tmp_path / "absent", tmp_path / "tls.key").context()


def test_an_ended_certificate_is_a_problem(tmp_path: Path) -> None:
    serving = write(tmp_path, LEAF)
    assert serving.problem(NOW) is None
    assert serving.problem(NOW + 2 * YEARS) == f"the serving certificate ended on {(NOW + YEARS).isoformat()}"
    assert "no serving certificate could be read" in (ServingPair("absent", "absent").problem(NOW) or "")


def test_a_pair_that_could_not_be_read_for_a_moment_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(0.0)
    write(tmp_path, LEAF)
    serving = ServingPair(tmp_path / "tls.crt", tmp_path / "tls.key", clock=clock)
    before = serving.context()
    write(tmp_path, leaf())

    def fail(_file: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", fail)
        assert serving.context() is before
    clock.advance(AGAIN)
    assert serving.context() is not before
