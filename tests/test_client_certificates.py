"""With webhook.clientCA, a client without a certificate of that CA is refused before a byte of HTTP."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issue import Pair, new_ca, new_leaf
from dev.lab.waiting import until
from tests.features import Naps
from tests.server import (
    BEGIN,
    CA,
    END,
    ROOT,
    Configured,
    Server,
    configure,
    get,
    gunicorn,
    post,
    read_response,
    review,
    trusting,
)
from tests.test_health import WSGI
from tests.test_smoke_check import PEM_IN_BASE64, asked

OLD, NEW, OTHER = (new_ca(name, BEGIN, END) for name in ("clients", "clients", "others"))


def signed_by(ca: Pair, end: datetime = END) -> Pair:
    return new_leaf(ca, ["kube-apiserver"], [], BEGIN, end, ExtendedKeyUsageOID.CLIENT_AUTH)


REFUSED = {
    "no certificate": (None, "CERTIFICATE_REQUIRED"),
    "one of another CA": (signed_by(OTHER), "UNKNOWN_CA"),
    "one of a CA with the same name": (signed_by(NEW), "UNKNOWN_CA"),
    "one of the CA that serves": (signed_by(CA), "UNKNOWN_CA"),
    "one that has ended": (signed_by(OLD, end=BEGIN + timedelta(minutes=1)), "CERTIFICATE_EXPIRED"),
    "one for servers": (new_leaf(OLD, ["localhost"], [], BEGIN, END), "UNSUPPORTED_CERTIFICATE"),
}


def presenting(pair: Pair | None, directory: Path) -> ssl.SSLContext:
    context = trusting()
    if pair:
        file = directory / "client.pem"
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
    return context


def call(server: Server, context: ssl.SSLContext) -> int:
    """The status of a review; ssl.SSLError when the handshake is refused."""
    with context.wrap_socket(server.raw(), server_hostname="localhost") as sock:
        sock.sendall(post(review()))
        return read_response(sock).status


def is_accepted(server: Server, context: ssl.SSLContext) -> bool:
    try:
        return call(server, context) == 200
    except ssl.SSLError:
        return False


def require(configured: Configured, *authorities: Pair | str) -> None:
    """Write the CAs into the configuration."""
    file = Path(configured.environ["DRAWBRIDGE_CONFIG"])
    config = json.loads(file.read_text())
    pems = (each if isinstance(each, str) else each.certificate.decode() for each in authorities)
    config["webhook"]["clientCA"] = "".join(pems)
    file.with_suffix(".new").write_text(json.dumps(config))
    file.with_suffix(".new").replace(file)


@contextmanager
def requiring(directory: Path, *authorities: Pair) -> Iterator[tuple[Server, Configured]]:
    configured = configure(directory, threads=2, drainPeriod="0s")
    require(configured, *authorities)
    (directory / "wsgi.py").write_text(WSGI)
    conf = str(ROOT / "gunicorn.conf.py")
    with gunicorn("-c", conf, "wsgi:app", cwd=directory, **configured.environ) as server:
        server.port = configured.https
        until(lambda: is_ready(configured), 30, "the server to be ready")
        yield server, configured


def is_ready(configured: Configured) -> bool:
    try:
        return get(configured.health, "/readyz")[0] == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with requiring(tmp_path_factory.mktemp("clients"), OLD) as (server, _):
        yield server


@pytest.mark.parametrize(("pair", "alert"), REFUSED.values(), ids=REFUSED)
def test_a_client_without_a_certificate_of_the_ca_is_refused_with_the_reason(
    shared: Server, tmp_path: Path, pair: Pair | None, alert: str
) -> None:
    with pytest.raises(ssl.SSLError, match=alert):
        call(shared, presenting(pair, tmp_path))

    assert call(shared, presenting(signed_by(OLD), tmp_path)) == 200


def test_a_client_is_refused_within_the_handshake_of_tls_1_2_too(shared: Server, tmp_path: Path) -> None:
    context = presenting(None, tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        context.wrap_socket(shared.raw(), server_hostname="localhost")


def test_the_ca_is_replaced_without_a_refused_call_and_junk_changes_nothing(tmp_path: Path) -> None:
    old, new = (presenting(signed_by(ca), tmp_path) for ca in (OLD, NEW))
    with requiring(tmp_path, OLD) as (server, configured):
        require(configured, OLD, NEW)
        until(lambda: is_accepted(server, new), 15, "the new CA to be accepted")
        assert is_accepted(server, old)

        require(configured, NEW)
        until(lambda: not is_accepted(server, old), 15, "the old CA to be refused")
        require(configured, "no PEM")
        server.wait_for_line(r"webhook\.clientCA: is not PEM.*last good one stays")
        assert (is_accepted(server, old), is_accepted(server, new)) == (False, True)


def test_the_smoke_check_of_a_server_that_requires_certificates_expects_to_be_refused(
    shared: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(shared, "--ca-base64", PEM_IN_BASE64, "--refused", Naps.path) == 0
    assert asked(shared, "--ca-base64", PEM_IN_BASE64, Naps.path) == 1
    well, ill, _ = capsys.readouterr().out.split("\n", 2)
    assert well == "ok localhost refuses clients without a certificate"
    assert ill.startswith("FAILED localhost/naps: ")
