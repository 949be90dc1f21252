"""The server as gunicorn.conf.py starts it: its health, metrics and logs, and how its pool is watched."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from gunicorn.arbiter import Arbiter

from dev.lab.waiting import stretch, until
from kube.connection import POOL_SIZE
from telemetry.server import MAX_CONNECTIONS
from tests.server import ROOT, Server, configure, get, gunicorn, post, read_response, review
from webhook.health import Pulse

WSGI = """
import os
from settings.file import SettingsFile
from tests.features import Naps
from webhook.app import create_app
from webhook.worker import stopping

client = None  # asked for nothing
settings = SettingsFile(os.environ["DRAWBRIDGE_CONFIG"])
app = create_app([Naps()], draining=stopping)
"""


def test_the_configured_server_reports_its_health_until_it_has_drained(tmp_path: Path) -> None:
    configured = configure(tmp_path, threads=2, drainPeriod="1s")
    health, metrics = configured.health, configured.metrics
    (tmp_path / "wsgi.py").write_text(WSGI)
    conf = str(ROOT / "gunicorn.conf.py")
    with gunicorn("-c", conf, "wsgi:app", cwd=tmp_path, **configured.environ) as server:
        server.wait_until_up()
        assert [get(health, path) for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2
        assert 'drawbridge_admission_requests_total{dry_run="false"' in get(metrics, "/metrics")[1]
        sock = server.tls()
        sock.sendall(post(review(nap=0.5)))
        server.process.terminate()
        until(lambda: get(health, "/readyz") == (503, "shutting down\n"))
        assert get(health, "/healthz") == (200, "ok\n")
        assert read_response(sock).connection == "close"
        assert server.process.wait(10 * stretch()) == 0
        assert_lines_are_json(server)


OF_ITS_OWN = 20
"""Files that the server has open without any connection."""


def test_clients_leave_it_files_for_its_pool_of_1024(tmp_path: Path) -> None:
    code = "import runpy; print(runpy.run_path('gunicorn.conf.py')['worker_connections'])"
    environ = {**os.environ, **configure(tmp_path).environ}
    clients = int(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=environ)) + 1

    assert OF_ITS_OWN + POOL_SIZE + clients + 2 * (MAX_CONNECTIONS + 1) < 1024


def assert_lines_are_json(server: Server) -> None:
    server.close()
    events = [json.loads(line)["event"] for line in server.lines]
    assert "drained, finishing requests in flight" in events


def test_a_bad_configuration_is_reported_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\nwebhook: {port: 0}\n"
    )
    environ = {"DRAWBRIDGE_CONFIG": str(tmp_path / "config.yaml")}
    with gunicorn("-c", str(ROOT / "gunicorn.conf.py"), "wsgi:app", cwd=tmp_path, **environ) as server:
        assert server.process.wait(10 * stretch()) == 1
        server.close()
        assert server.lines[0] == f"{tmp_path / 'config.yaml'} cannot be used:"
        assert server.lines[1].startswith("webhook.port: ")


@pytest.mark.parametrize(
    ("which", "setting"),
    [
        pytest.param("health", "health.healthProbeBindAddress", id="health"),
        pytest.param("metrics", "metrics.bindAddress", id="metrics"),
    ],
)
def test_a_port_that_is_taken_is_named_and_ends_the_server_without_a_traceback(
    tmp_path: Path, which: str, setting: str
) -> None:
    configured = configure(tmp_path)
    (tmp_path / "wsgi.py").write_text(WSGI)
    port = getattr(configured, which)
    arguments = ("-c", str(ROOT / "gunicorn.conf.py"), "wsgi:app")
    with (
        socket.create_server(("127.0.0.1", port)),
        gunicorn(*arguments, cwd=tmp_path, **configured.environ) as server,
    ):
        assert server.process.wait(20 * stretch()) == Arbiter.WORKER_BOOT_ERROR
        server.close()
    at = server.lines.index("the webhook server cannot start:")
    assert server.lines[at + 1].startswith(f"{setting} :{port}: address already in use; set another")
    assert not any("Traceback" in line for line in server.lines)


class Pool:
    """A pool whose jobs are done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Future[None]] = []

    def submit(self, job: Callable[[], None]) -> Future[None]:
        self.jobs.append(Future())
        return self.jobs[-1]


def test_a_pool_that_answers_is_not_silent() -> None:
    def submit(job: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(job())
        return done

    assert Pulse(submit).silence(patience=0) == 0.0


def test_the_silence_of_a_stuck_pool_grows_and_ends_when_it_answers() -> None:
    pool, now = Pool(), [100.0]
    pulse = Pulse(pool.submit, clock=lambda: now[0])
    silences = []
    for now[0] in (100.0, 107.0, 130.0):
        silences.append(pulse.silence(patience=0))
    assert (silences, len(pool.jobs)) == ([0.0, 7.0, 30.0], 1)
    pool.jobs[0].set_result(None)
    assert (pulse.silence(patience=0), len(pool.jobs)) == (0.0, 2)
