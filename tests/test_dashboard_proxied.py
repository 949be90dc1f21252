"""The page in the cluster: for all that a proxy lets through, under its own names, and without a way to write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from dashboard.__main__ import Server
from dashboard.app import HEADERS, create_read_only_app
from dev.fake_api import FakeAPI
from tests import cli
from tests.dashboard import mirror
from tests.factories import raw_pod
from tests.pages import ROOT
from tests.test_ingress_daemonset_rollout import begun, detaching

NAME = "drawbridge.example.com"
PATHS = ("/", "/reservations", "/addresses", "/elasticity", "/rollouts", "/explain/pod/shop/redis-0")


@pytest.fixture
def api() -> FakeAPI:
    api = cli.installed(*cli.FEATURES)
    api.put(cli.resource("Namespace"), {"metadata": {"name": "shop"}})
    api.put(cli.resource("Pod"), raw_pod("redis-0", namespace="shop"))
    mirror(begun(updateStrategy={"rollingUpdate": detaching(limit=2)}), api)
    return api


def app_of(api: FakeAPI) -> Flask:
    return create_read_only_app(cli.cluster_of(api), {NAME})


def open_page(app: Flask, path: str, host: str = NAME, **options: bool) -> TestResponse:
    return app.test_client().get(path, headers={"Host": host}, **options)


@pytest.mark.parametrize("path", PATHS)
def test_each_page_is_shown_without_a_token(api: FakeAPI, path: str) -> None:
    answer = open_page(app_of(api), path)

    assert answer.status_code == 200
    assert "cannot be shown" not in answer.text
    assert "Read only, with the permissions of the ServiceAccount" in answer.text
    assert HEADERS.items() <= dict(answer.headers).items()


@pytest.mark.parametrize("host", [NAME, f"{NAME}:8443", NAME.upper()])
def test_the_case_and_the_port_of_a_name_do_not_matter(api: FakeAPI, host: str) -> None:
    assert open_page(app_of(api), "/", host).status_code == 200


@pytest.mark.parametrize("host", ["attacker.example", "10.0.0.7:8090", f"a.{NAME}", "", "localhost"])
@pytest.mark.parametrize("path", ["/", "/live/overview", "/static/style.css"])
def test_a_name_that_is_not_allowed_is_refused_with_the_value_that_allows_it(
    api: FakeAPI, host: str, path: str
) -> None:
    answer = open_page(app_of(api), path, host)

    assert answer.status_code == 421
    assert "add it to dashboard.allowedHosts of the chart" in answer.text


def test_a_probe_needs_no_name_and_reads_nothing(api: FakeAPI) -> None:
    before = len(api.calls)
    answer = open_page(app_of(api), "/healthz", "10.0.0.7:8090")

    assert (answer.status_code, answer.text) == (200, "ok")
    assert len(api.calls) == before


def test_a_namespace_with_a_query_leads_to_no_other_path(api: FakeAPI) -> None:
    before = len(api.calls)
    answer = open_page(app_of(api), "/explain/pod/%3Fwatch=true%23/redis-0")

    assert answer.status_code == 200
    assert "cannot be shown" in answer.text
    assert all("watch" not in each.query for each in api.calls[before:])


def test_nothing_can_be_written(api: FakeAPI) -> None:
    app = app_of(api)
    text = open_page(app, "/rollouts").text
    methods = {method for rule in app.url_map.iter_rules() for method in rule.methods or ()}

    assert 'method="post"' not in text
    assert "This page only reads" in text
    assert methods == {"GET", "HEAD", "OPTIONS"}


def test_the_server_listens_on_an_address_of_either_family() -> None:
    server = Server(("::", 8090), lambda: Flask(__name__))

    assert server.cfg.bind == ["[::]:8090"]
    assert server.cfg.worker_class_str == "gthread"


def test_what_it_logs_is_json(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    without = {"KUBECONFIG": str(tmp_path / "none"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "dashboard", "--listen=127.0.0.1:0"]
    ended = subprocess.run(command, env=environ | without, capture_output=True, text=True, check=False)

    # gunicorn prints the reason once more.
    lines = [json.loads(each) for each in ended.stderr.splitlines() if not each.startswith("there is no")]
    assert [(each["logger"], each["level"]) for each in lines] == [("gunicorn.error", "error")] * len(lines)
    assert "there is no kubeconfig" in lines[0]["exception"]


def test_what_it_predicts_is_not_logged() -> None:
    command = (
        "from telemetry import logs; from cli.session import log_no_decisions; import structlog, logging;"
        " logs.configure('warning'); log_no_decisions();"
        " structlog.stdlib.get_logger('webhook').warning('pod not gated');"
        " logging.getLogger('flask').error('failed')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert [json.loads(each)["event"] for each in ended.stderr.splitlines()] == ["failed"]
    assert ended.stdout == ""
