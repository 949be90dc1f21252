"""The probe of `helm test`: it finds out what would keep the API server from an answer, and says it in one line."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from certs.issue import new_ca
from dev.fake_api import BUILT_IN, CALICO_V3, FakeAPI, Reply, Request, refusal
from features import FEATURES
from settings import parse as parse_settings
from tests.features import Naps
from tests.server import BEGIN, CA, END, Server, serving
from webhook import smoke_check
from webhook.admission import Webhook, parse
from webhook.ip_reservation import smoke_check as reservation
from webhook.replica import Replica

RESERVATIONS = CALICO_V3[0].resource
PEM_IN_BASE64 = base64.b64encode(CA.certificate).decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("probe")) as running:
        yield running


def asked(server: Server, *arguments: str, name: str = "localhost") -> int:
    """The probe's exit code, with the environment that the kubelet sets for the Service."""
    variable = name.partition(".")[0].upper()
    environ = {f"{variable}_SERVICE_HOST": "127.0.0.1", f"{variable}_SERVICE_PORT": str(server.port)}
    return smoke_check.main(["--server", name, "--seconds", "0", *arguments], environ)


def test_each_path_is_reported_and_one_that_is_not_served_fails_the_test(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_bytes(CA.certificate)

    assert asked(server, "--ca-file", str(tmp_path / "ca.crt"), Naps.path, "/mutate/nothing") == 1
    assert asked(server, "--ca-base64", PEM_IN_BASE64, Naps.path) == 0

    assert asked(server, "--ca-base64", PEM_IN_BASE64, "--refused", Naps.path) == 1

    assert capsys.readouterr().out.splitlines() == [
        "ok localhost/naps",
        "FAILED localhost/mutate/nothing: HTTP 404: no webhook is served at this path",
        "ok localhost/naps",
        "FAILED localhost refuses clients without a certificate: it answers with HTTP 200",
    ]


OTHER_CA = base64.b64encode(new_ca("another", BEGIN, END).certificate).decode()


@pytest.mark.parametrize(
    ("ca", "name", "found"),
    [
        pytest.param(OTHER_CA, "localhost", "CERTIFICATE_VERIFY_FAILED", id="another CA"),
        pytest.param(PEM_IN_BASE64, "gate.other.svc", "not valid for 'gate.other.svc'", id="another Service"),
    ],
)
def test_a_server_that_the_api_server_would_not_trust_is_reported(
    server: Server, capsys: pytest.CaptureFixture[str], ca: str, name: str, found: str
) -> None:
    assert asked(server, "--ca-base64", ca, Naps.path, name=name) == 1
    assert found in capsys.readouterr().out


@pytest.mark.parametrize(
    "trust",
    [
        pytest.param(["--ca-base64", "?"], id="not base64"),
        pytest.param(["--ca-base64", "Q0E="], id="no certificate"),
        pytest.param(["--ca-file", "/nonexistent/ca.crt"], id="no such file"),
    ],
)
def test_a_ca_that_cannot_be_used_is_reported(trust: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke_check.main(["--server", "localhost", *trust, "/"], {}) == 2

    assert capsys.readouterr().err.startswith("the CA cannot be used: ")


class Unasked:
    """A client that no review may use."""


ALL_ENABLED = parse_settings(
    """
    apiVersion: drawbridge.io/v1
    kind: DrawbridgeConfig
    leaderElection: {leaderElect: false}
    anycastIP: {enabled: true, clusterID: cls-1}
    elasticity: {enabled: true}
    ingressDaemonSet: {enabled: true}
    """
)
WEBHOOKS = Replica(Unasked(), lambda: ALL_ENABLED, "a").webhooks(FEATURES)  # type: ignore[arg-type]


@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda each: each.name)
def test_no_webhook_finds_anything_to_do_in_its_review(webhook: Webhook) -> None:
    decision = webhook.review(parse(smoke_check.review("u-1")), 0.0)

    assert (decision.allowed, decision.patch, decision.warnings) == (True, (), ())


def answer(**changed: object) -> bytes:
    response = {"uid": "u-1", "allowed": True}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response} | changed
    ).encode()


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        pytest.param(200, answer(), "", id="as it should be"),
        pytest.param(503, b"draining\n", "HTTP 503: draining", id="not now"),
        pytest.param(200, b"<html>", "the answer is no AdmissionReview", id="something else answers"),
        pytest.param(200, answer(kind="Status"), "the answer is a Status of", id="another kind"),
        pytest.param(200, answer(response={"uid": "u-2"}), "to 'u-2', not to 'u-1'", id="another's answer"),
        pytest.param(200, answer(response={"uid": "u-1"}), "was refused", id="refused"),
    ],
)
def test_an_answer_is_judged_as_the_api_server_would(status: int, body: bytes, found: str) -> None:
    fault = smoke_check.fault(status, body, "u-1")

    assert found in fault
    assert bool(fault) is bool(found)


def failing(times: int) -> Callable[[str, bytes], tuple[int, bytes]]:
    """Refuses connections so often, and then answers."""
    left = iter(range(times))

    def ask(_path: str, body: bytes) -> tuple[int, bytes]:
        if next(left, None) is not None:
            raise ConnectionRefusedError("connection refused")
        return 200, answer(response={"uid": json.loads(body)["request"]["uid"], "allowed": True})

    return ask


@pytest.mark.parametrize(
    ("left", "found"),
    [pytest.param(60.0, "", id="in time"), pytest.param(0.0, "connection refused", id="too late")],
)
def test_a_server_that_is_not_up_yet_is_asked_again_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, left: float, found: str
) -> None:
    monkeypatch.setattr(smoke_check, "AGAIN", 0.0)

    attempt = partial(smoke_check.call, failing(5), "/")
    assert smoke_check.outcome(attempt, time.monotonic() + left) == found


def test_without_a_word_of_the_kubelet_the_service_is_looked_up_by_its_name() -> None:
    assert smoke_check.address_of("gate-webhook.ns.svc", {}) == ("gate-webhook.ns.svc", 443)
    given = {"GATE_WEBHOOK_SERVICE_HOST": "10.0.0.7", "GATE_WEBHOOK_SERVICE_PORT": "8443"}
    assert smoke_check.address_of("gate-webhook.ns.svc", given) == ("10.0.0.7", 8443)


def reserved_in(api: FakeAPI) -> int:
    return reservation.main(["--namespace", "keeper", "--seconds", "0"], api.client, "prod-test-reservation")


def test_an_address_is_reserved_and_released_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    api = FakeAPI(*BUILT_IN, *CALICO_V3)
    seen: list[list[str]] = []

    def remember(call: Request, _reply: Reply) -> None:
        if call.method != "GET":
            seen.append([cidr for each in api.list(RESERVATIONS) for cidr in each["spec"]["reservedCIDRs"]])

    api.after = remember
    assert reserved_in(api) == 0

    assert capsys.readouterr().out == "ok 192.0.2.1 was reserved and released\n"
    assert seen == [["192.0.2.1/32"], []]


@pytest.mark.parametrize(
    ("method", "found"), [("POST", "cannot be reserved"), ("PATCH", "cannot be released")]
)
def test_what_a_policy_refuses_fails_the_test(
    capsys: pytest.CaptureFixture[str], method: str, found: str
) -> None:
    denied = refusal(422, "Invalid", "ValidatingAdmissionPolicy 'prod-reservations' denied the request")
    api = FakeAPI(*BUILT_IN, *CALICO_V3)
    api.fault = lambda call: denied if call.method == method else None

    assert reserved_in(api) == 1

    said = capsys.readouterr().out
    assert said.startswith("FAILED 192.0.2.1")
    assert found in said
    assert "ValidatingAdmissionPolicy 'prod-reservations'" in said
