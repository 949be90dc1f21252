"""The controllers as a program: what ends it, with which code and which last words, and what it leaves behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

import features
from controllers.__main__ import main
from dev.fake_api import FakeAPI
from dev.lab.direct import urlopen
from dev.lab.waiting import stretch, until
from settings import Settings
from tests.misbehaving_server import Server, serving
from tests.sockets import free_ports
from tests.test_cli_kubeconfig import written

ROOT = Path(__file__).parent.parent
LEASE = ("/apis/coordination.k8s.io/v1/leases", "drawbridge", "drawbridge")
"""Its collection, name and namespace."""
HEADER = {"apiVersion": "drawbridge.io/v1", "kind": "DrawbridgeConfig"}
ELECTION = {"leaseDuration": "1500ms", "renewDeadline": "1s", "retryPeriod": "100ms"}


def configure(directory: Path, server: Server | None, **config: Any) -> tuple[int, int]:
    """A configuration, and access to *server* if it is given; the ports of health and metrics."""
    health, metrics = free_ports(2)
    given = {
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "leaderElection": ELECTION,
        # It would wait for Calico's pools, and say so: they are not served here.
        "ipReservation": {"standing": {"enabled": False}},
    }
    (directory / "config.yaml").write_text(json.dumps(HEADER | given | config))
    if server:
        written(directory / "kubeconfig", cluster={"server": server.url})
    return health, metrics


class Program:
    """``python -m controllers``, or what *begin* says, configured in *directory*."""

    def __init__(self, directory: Path, server: Server, begin: Sequence[str]) -> None:
        self.health, self.metrics = configure(directory, server)
        environ = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
        self.process = subprocess.Popen(
            [sys.executable, *begin],
            cwd=ROOT,
            env=environ | environment(directory),
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, port: int, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            text: str = response.read().decode()
            return text

    def end(self, within: float = 60.0) -> tuple[int, str]:
        """The exit code and all that it said."""
        _, said = self.process.communicate(timeout=within * stretch())
        return self.process.returncode, said


def environment(directory: Path) -> dict[str, str]:
    return {
        "DRAWBRIDGE_CONFIG": str(directory / "config.yaml"),
        "KUBECONFIG": str(directory / "kubeconfig"),
        "POD_NAME": "controllers-0",
    }


@contextmanager
def cluster() -> Iterator[tuple[FakeAPI, Server]]:
    api = FakeAPI()
    api.ensure_namespace("drawbridge")
    with serving(api) as server:
        yield api, server


@contextmanager
def begun(directory: Path, server: Server, begin: Sequence[str] = ("-m", "controllers")) -> Iterator[Program]:
    program = Program(directory, server, begin)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()


@contextmanager
def leading(directory: Path, api: FakeAPI, server: Server) -> Iterator[Program]:
    """The program, from when it does the leader's work."""
    with begun(directory, server) as program:
        until(lambda: any(asked.watches and asked.path.endswith("/pods") for asked in server.asked), 15)
        yield program


def spec_of(api: FakeAPI) -> dict[str, Any]:
    spec: dict[str, Any] = api.get(*LEASE)["spec"]
    return spec


BAD = {"ipReservation": {"duration": "40"}}
IN_USE = "127.0.0.1:{}: address already in use; set another"


@pytest.mark.parametrize(
    ("config", "taken", "words"),
    [
        pytest.param(BAD, None, "ipReservation.duration: '40'", id="configuration"),
        pytest.param(None, None, "cannot connect to the API server by ", id="credentials"),
        pytest.param({}, 0, f"health.healthProbeBindAddress {IN_USE}", id="port of health"),
        pytest.param({}, 1, f"metrics.bindAddress {IN_USE}", id="port of metrics"),
    ],
)
def test_without_what_it_needs_it_says_so_and_ends_with_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    config: dict[str, Any] | None,
    taken: int | None,
    words: str,
) -> None:
    with cluster() as (_, server), ExitStack() as stack:
        ports = configure(tmp_path, None if config is None else server, **config or {})
        for name, value in environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        if taken is not None:
            stack.enter_context(socket.create_server(("127.0.0.1", ports[taken])))
        with signals_restored(), logging_restored():
            assert main() == 2
        assert server.asked == []
    said = words.format(ports[taken or 0])
    assert capsys.readouterr().err.startswith(f"the controllers cannot start:\n{said}")


@contextmanager
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, configured = root.handlers, root.level, structlog.get_config()
    yield
    root.handlers, root.level = handlers, level
    logging.captureWarnings(False)
    structlog.configure(**configured)


@contextmanager
def signals_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_sigterm_ends_it_with_0_and_its_lease_is_free_at_once(tmp_path: Path) -> None:
    with cluster() as (api, server), leading(tmp_path, api, server) as program:
        assert spec_of(api)["holderIdentity"].startswith("controllers-0_")
        assert [program.get(program.health, path) for path in ("/healthz", "/readyz")] == ["ok\n"] * 2
        assert 'drawbridge_leader{lease="drawbridge"} 1.0' in program.get(program.metrics, "/metrics")
        assert 'leader_election_master_status{name="drawbridge"} 1.0' in program.get(
            program.metrics, "/metrics"
        )
        program.process.terminate()
        code, said = program.end()
        assert (code, spec_of(api)["holderIdentity"], server.asked[-1].method) == (0, "", "PUT")
    assert [json.loads(line)["level"] for line in said.splitlines()] == ["info"]


def test_lost_leadership_ends_it_with_1_and_the_winner_keeps_the_lease(tmp_path: Path) -> None:
    with cluster() as (api, server), leading(tmp_path, api, server) as program:
        taken = api.get(*LEASE)
        api.put(LEASE[0], taken | {"spec": taken["spec"] | {"holderIdentity": "another"}})
        code, said = program.end()
        assert (code, spec_of(api)["holderIdentity"]) == (1, "another")
    last_words(said)


def last_words(said: str) -> str:
    """Why a leader ended that starts again as a follower."""
    assert "Traceback" not in said
    last = json.loads(said.splitlines()[-1])
    assert (last["level"], last["event"]) == ("error", "exiting, to start again as a follower")
    return str(last["error"])


IMPATIENT = """
import sys
from controllers import __main__
from controllers import informers
informers.LONGEST_SILENCE = 0.5
sys.exit(__main__.main())
"""


def test_a_leader_that_cannot_follow_frees_its_lease_and_ends_with_1(tmp_path: Path) -> None:
    with cluster() as (api, server), begun(tmp_path, server, ("-c", IMPATIENT)) as program:
        code, said = program.end()
        assert code == 1, said
        assert spec_of(api)["holderIdentity"] == "", said
    assert last_words(said).startswith("no LIST or watch of ")


SIGNALLED = """
import faulthandler, os, signal, sys
from telemetry.program import stop_on_signals
faulthandler.dump_traceback_later(10, exit=True)
stop = stop_on_signals()
with stop._cond:  # as in the middle of its wait()
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):
        pass
sys.exit(0 if stop.wait(5) else 1)
"""


def test_a_signal_in_the_middle_of_a_wait_blocks_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], cwd=ROOT, timeout=30 * stretch(), capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


STUCK = """
import sys, threading
from controllers import __main__, liveness
from controllers.ip_reservation.release_reconciler import ReleaseReconciler
liveness.LONGEST_RUN = 0.5
ReleaseReconciler.reconcile = lambda self, key: threading.Event().wait()
sys.exit(__main__.main())
"""


def test_the_health_endpoint_says_which_queue_hangs(tmp_path: Path) -> None:
    with cluster() as (_, server), begun(tmp_path, server, ("-c", STUCK)) as program:

        def health() -> tuple[int, str]:
            try:
                return 200, program.get(program.health, "/healthz")
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except OSError:
                return 0, ""

        until(lambda: health()[0] == 503, 30)
        assert "ip_reservation_rounds has been at one piece of work for" in health()[1]
        program.process.kill()
        program.end()


def test_a_follower_is_alive(tmp_path: Path) -> None:
    with cluster() as (api, server):
        held = {
            "holderIdentity": "another",
            "leaseDurationSeconds": 600,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }
        api.put(LEASE[0], {"metadata": {"name": LEASE[1], "namespace": LEASE[2]}, "spec": held})
        with begun(tmp_path, server) as program:
            until(lambda: any(asked.path.endswith("/leases/drawbridge") for asked in server.asked), 30)
            assert program.get(program.health, "/healthz") == "ok\n"
            assert not any(asked.watches for asked in server.asked)
            program.process.terminate()
            assert program.end()[0] == 0


def test_a_feature_that_is_disabled_is_not_started() -> None:
    def names(**fields: Any) -> set[str]:
        return {feature.name for feature in features.running(Settings.model_validate(fields))}

    assert names() == {"ip_reservation"}
    assert names(ipReservation={"enabled": False}) == set()
    assert names(anycastIP={"enabled": True, "clusterID": "cls-abc"}) == {"ip_reservation", "anycast_ip"}
    assert names(ipReservation={"enabled": False}, elasticity={"enabled": True}) == {"elasticity"}
    assert names(certs={"mode": "self-managed"}) == {"ip_reservation", "certificates"}
    assert names(certs={"mode": "cert-manager"}) == {"ip_reservation"}
