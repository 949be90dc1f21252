"""Whatever stands in a cluster, no command sends a terminal more than letters, signs and blanks."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
import yaml
from rich.console import Console
from rich.text import Text
from structlog.testing import capture_logs

from cli.errors import Failure
from cli.output import FORMS, Document, Form, Output, Table, bad
from dev.fake_api import FakeAPI, refusal
from kube.resources import EVENTS
from tests import cli
from tests.factories import BEYOND_ALL_TIMES, NOW, raw_pod

EVIL = "\x1b[2J\x1b]0;x\x07\nnothing is wrong\u202egpj\x9b31m\u2028\x7f"
SHOWN = r"\x1b[2J\x1b]0;x\x07\nnothing is wrong\u202egpj\x9b31m\u2028\x7f"
COMMANDS = (
    ("elasticity", "list"),
    ("explain", "pod", "redis-0"),
    ("explain", "node", "n1"),
    ("addresses", "list"),
    ("reservations", "list", "-A"),
    ("rollout", "get", "edge"),
    ("rollout", "get"),
    ("status",),
    ("simulate", "drain", "n1"),
)


@pytest.fixture
def api() -> FakeAPI:
    api = cli.installed(*cli.FEATURES)
    labels = {"tke.cloud.tencent.com/need-aia-ip": "true"}
    proof = {"drawbridge.io/anycast-ip-bound": EVIL, "tke.cloud.tencent.com/anycast-ip-id": EVIL}
    api.put(cli.resource("Node"), {"metadata": {"name": "n1", "labels": labels, "annotations": proof}})
    placed = {"drawbridge.io/placement-reason": EVIL, "drawbridge.io/placement": EVIL}
    spec = {"nodeName": "n1", "schedulingGates": [{"name": "drawbridge.io/placement"}]}
    said = {"type": "Ready", "status": "False", "reason": EVIL, "message": EVIL}
    status = {"conditions": [said, *BEYOND_ALL_TIMES]}
    pod = raw_pod(namespace="default", spec=spec, status=status, metadata={"annotations": placed})
    api.put(cli.resource("Pod"), pod)
    about = {"kind": "Pod", "name": "redis-0", "namespace": "default"}
    event = {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": about, "type": "Warning"}
    said = {"message": EVIL, "reason": EVIL, "source": {"component": "drawbridge-controllers"}}
    api.put(EVENTS, event | said | {"lastTimestamp": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"})
    condition = {"type": "Progressing", "status": "False", "reason": "Halted", "message": EVIL}
    template = {
        "metadata": {"labels": {"app": "edge"}},
        "spec": {"containers": [{"name": "a", "image": EVIL}]},
    }
    waiting = [{"node": "n1", "phase": "Outdated", "reason": EVIL}]
    resource = {"spec": {"template": template}, "status": {"conditions": [condition], "waitingFor": waiting}}
    api.put(
        cli.resource("IngressDaemonSet"), {"metadata": {"name": "edge", "namespace": "default"}} | resource
    )
    held = {"metadata": {"name": "held"}, "spec": {"reservedCIDRs": [EVIL, "10.0.0.7/32"]}}
    api.put(cli.resource("IPReservation"), held)
    return api


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_a_command_prints_is_printable(api: FakeAPI, command: tuple[str, ...], form: Form) -> None:
    result = cli.run(api, *command, "-o", form)

    assert result.output.replace("\n", "").isprintable()
    assert not any(line.startswith("nothing is wrong") for line in result.output.splitlines())


def test_what_was_escaped_can_be_seen(api: FakeAPI) -> None:
    assert SHOWN in cli.run(api, "elasticity", "list").output
    assert SHOWN in cli.run(api, "explain", "pod", "redis-0").output
    assert SHOWN in cli.run(api, "rollout", "get", "edge").output


class Answer(Document, frozen=True):
    said: str


@pytest.mark.parametrize("said", [EVIL, "plain", "naïve 日本", f"日本\U000e0041{EVIL}"])
def test_programs_get_what_stands_in_the_cluster(said: str) -> None:
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        file = io.StringIO()
        Output(form, file=file).show(Answer(said), lambda _: [])  # type: ignore[arg-type]

        assert read(file.getvalue()) == {"said": said}
        assert file.getvalue().replace("\n", "").isprintable()


def test_a_terminal_gets_nothing_but_its_own_colors() -> None:
    file = io.StringIO()
    output = Output(file=file)
    output._console = Console(file=file, force_terminal=True, width=200, color_system=None)
    parts: list[Any] = [
        EVIL,
        bad(EVIL),
        Text.assemble("a", bad(EVIL)),
        Table(("A", "B"), [(EVIL, bad(EVIL))], EVIL),
    ]

    output.show(None, lambda _: parts)
    output.say(EVIL)
    output.say(bad(EVIL))

    assert file.getvalue().replace("\n", "").isprintable()


def test_errors_and_questions_are_printable(api: FakeAPI) -> None:
    shown = io.StringIO()
    Failure(EVIL, EVIL).show(shown)
    assert shown.getvalue() == f"Error: {SHOWN}\nWhat to do: {SHOWN}\n"

    api.fault = lambda call: refusal(403, "Forbidden", EVIL) if call.path.endswith("/nodes") else None
    assert SHOWN in cli.run(api, "addresses", "list").output


def test_what_webhooks_log_stands_in_no_document() -> None:
    """Of a pod that is not gated, as there has been no leader for long."""
    api, ended = cli.installed("elasticity", leads=False), NOW - timedelta(hours=1)
    api.now = lambda: ended
    api.put(cli.resource("Lease"), cli.lease(ended))
    api.now = lambda: NOW
    [held] = api.list(cli.resource("MutatingWebhookConfiguration"))
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    webhooks = [each | {"rules": [pods]} for each in held["webhooks"]]
    api.put(cli.resource("MutatingWebhookConfiguration"), held | {"webhooks": webhooks})
    api.put(
        cli.resource("Pod"), raw_pod(namespace="default", metadata={"annotations": {"LOCAL_REPLICAS": "1"}})
    )
    with capture_logs() as logged:
        shown = cli.shown(api, "explain", "pod", "redis-0")

    assert "have had no leader" in json.dumps(shown)
    assert logged == []
