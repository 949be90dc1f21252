"""What all commands have in common: options, forms of output, errors with the way out, exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from cli.app import COMMANDS, drawbridge
from cli.errors import UNREADABLE, unreadable
from cli.output import Document, Output, Part, Report, Table, bad, duration
from cli.session import Command, Options, Session, pass_session
from dev.fake_api import FakeAPI
from dev.lab.waiting import stretch, until
from kube.errors import Forbidden, NotConfigured, Unreachable
from tests import cli
from tests.kubeconfigs import written
from tests.misbehaving_server import hangs, serving
from tests.server import ROOT


class Answer(Document, frozen=True):
    pod_name: str
    since: datetime | None = None


AT_ONCE = SimpleNamespace(sleep=lambda _: None)
ANSWER = Answer("redis-0", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def parts(answer: Answer) -> list[Part]:
    return [bad("broken"), Table(("POD", "NODE"), [(answer.pod_name, "node-1")], wide=1)]


def output(form: Any = "table", render: Callable[[Answer], list[Part]] = parts) -> str:
    file = io.StringIO()
    Output(form, file=file).show(ANSWER, render)
    return file.getvalue()


def reading(*answers: object) -> Callable[[], Any]:
    """A function that returns or raises one after the other, and then is interrupted."""
    following = iter((*answers, KeyboardInterrupt()))

    def read() -> object:
        if isinstance(answer := next(following), BaseException):
            raise answer
        return answer

    return read


def test_json_and_yaml_have_every_field() -> None:
    expected = {"podName": "redis-0", "since": "2026-01-02T03:04:05Z"}

    assert json.loads(output("json")) == yaml.safe_load(output("yaml")) == expected


def test_a_value_that_is_watched_is_shown_when_it_changes_until_ctrl_c() -> None:
    file = io.StringIO()
    Output("json", file=file, clock=AT_ONCE).watch(reading(ANSWER, ANSWER, Answer("redis-1")), parts)

    assert [line.strip() for line in file.getvalue().splitlines() if "podName" in line] == [
        '"podName": "redis-0",',
        '"podName": "redis-1",',
    ]


class Shown(Report, frozen=True):
    name: str

    def parts(self, now: datetime) -> list[Part]:
        return [self.name]


def test_what_is_watched_goes_on_when_the_api_server_was_away(capsys: pytest.CaptureFixture[str]) -> None:
    away = Unreachable("connection refused")
    read = reading(Shown("before"), away, away, Shown("after"), away)
    session = Session(Options(), lambda _: cli.cluster_of(FakeAPI()))
    session.output = Output(clock=AT_ONCE)
    with pytest.raises(SystemExit) as ended:
        session.follow(read, watch=True)
    again = "connection refused; trying again"

    assert capsys.readouterr().out.splitlines() == ["before", again, "after", again]
    assert ended.value.code == 0


def test_what_was_never_read_is_not_watched() -> None:
    session = Session(Options(), lambda _: cli.cluster_of(FakeAPI()))

    with pytest.raises(Unreachable):
        session.follow(reading(Unreachable("connection refused")), watch=True)


def test_on_a_terminal_ages_go_on_while_the_value_stays() -> None:
    ages, file = iter(["0s", "1s"]), io.StringIO()
    watched = Output(file=file, clock=AT_ONCE)
    watched._console = Console(file=file, force_terminal=True, color_system=None)
    watched.watch(reading(ANSWER, ANSWER), lambda _: [next(ages)])

    assert "1s" in file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@click.command(cls=Command)
@pass_session
def options(session: Session) -> None:
    click.echo(f"{session.options.namespace} {session.options.output} {session.scope} {session.options.yes}")


@click.command(cls=Command)
@pass_session
def write(session: Session) -> None:
    session.confirm("Delete all?")
    session.output.say("deleted")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("options", "write"):
        monkeypatch.setitem(COMMANDS, name, (f"{__name__}:{name}", ""))


def call(*arguments: str, answer: str | None = None) -> tuple[int, str]:
    result = cli.run(FakeAPI(), *arguments, answer=answer, namespace="of-context")
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["options"], "None table of-context False", id="defaults"),
        pytest.param(["-n", "a", "-o", "json", "options"], "a json a False", id="before the command"),
        pytest.param(["options", "-n", "a", "-o", "json", "-y"], "a json a True", id="after it, as kubectl"),
        pytest.param(["-n", "a", "options", "-n", "b"], "b table b False", id="the later one counts"),
        pytest.param(["options", "-A"], "None table None False", id="all namespaces"),
    ],
)
def test_options_stand_before_or_after_the_command(arguments: list[str], expected: str) -> None:
    assert call(*arguments) == (0, f"{expected}\n")


def test_a_write_that_is_not_confirmed_changes_nothing() -> None:
    code, printed = call("write", answer="n\n")
    assert (code, printed.splitlines()[-1]) == (1, "Error: declined; nothing was changed")

    code, printed = call("write")
    assert (code, printed.splitlines()[-1]) == (1, "What to do: answer y, or repeat it with --yes")


@pytest.mark.parametrize(
    "line",
    ["nonsense", "options -o xml", "simulate scale deployment/ 2", "simulate scale web 200000000"],
)
def test_a_wrong_command_line_ends_with_2(line: str) -> None:
    """Such as one with no name, or with more pods than a cluster has."""
    assert call(*line.split())[0] == 2


@pytest.mark.parametrize("name", ["", "..", "web/status", "web?x", "web#", "web%2e"])
@pytest.mark.parametrize(
    "command",
    ["rollout status --timeout 1s", "rollout undo", "explain pod", "simulate drain", "simulate delete"],
)
def test_a_name_that_makes_another_path_is_refused(command: str, name: str) -> None:
    assert call(*command.split(), name)[0] == 2


FORBIDDEN = 'pods is forbidden: User "eve" cannot list resource "pods" in API group "" at the cluster scope'


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(Forbidden(403, "Forbidden", FORBIDDEN), "have an administrator allow it", id="403"),
        pytest.param(Unreachable("GET /api: refused"), "kubectl get --raw /version", id="no connection"),
        pytest.param(NotConfigured("there is no kubeconfig at /x"), "--kubeconfig", id="no kubeconfig"),
    ],
)
def test_an_error_of_the_cluster_has_the_way_out_and_ends_with_3(error: Exception, expected: str) -> None:
    failure = unreadable(error)  # type: ignore[arg-type]

    assert expected in failure.way_out
    assert failure.exit_code == UNREADABLE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_its_script(shell: str) -> None:
    code, printed = call("completion", shell)

    assert code == 0
    assert "_DRAWBRIDGE_COMPLETE" in printed


def test_commands_and_options_are_completed() -> None:
    """As the script for kubectl asks."""
    environment = {
        "_DRAWBRIDGE_COMPLETE": "bash_complete",
        "COMP_WORDS": "drawbridge rollout pa",
        "COMP_CWORD": "2",
    }
    result = CliRunner().invoke(drawbridge, env=environment, prog_name="drawbridge")

    assert result.output == "plain,pause\n"
    assert "COMP_CWORD=$# _DRAWBRIDGE_COMPLETE=bash_complete" in call("completion", "kubectl")[1]


def test_names_are_completed_without_the_import_of_their_commands() -> None:
    code = "from cli.app import main\nimport atexit, sys\n"
    code += (
        "atexit.register(lambda: print(*(each for each in sys.modules if each.endswith('.command'))))\nmain()"
    )
    asked = {"_DRAWBRIDGE_COMPLETE": "zsh_complete", "COMP_WORDS": "drawbridge s", "COMP_CWORD": "1"}
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    expected = [("plain", name, COMMANDS[name][1]) for name in ("status", "simulate")]
    assert [*zip(found[:-1:3], found[1:-1:3], found[2:-1:3], strict=True)] == expected
    assert found[-1] == ""


def test_a_long_table_on_a_terminal_has_its_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    rows = [(f"pod-{number}", bad("gone") if number == 250 else "fine") for number in range(300)]

    lines = output(render=lambda _: [Table(("POD", "STATE"), rows)]).splitlines()
    assert len(lines) == 301
    assert lines[1] == "pod-0     fine"
    assert "\x1b[1;31mgone" in lines[251]


def test_a_narrow_terminal_breaks_no_word_and_shows_no_empty_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [("edge-1", "", "it waits for its turn after all the others")]
    way_out = "    drawbridge rollout get edge -n web shows why"
    shown = output(render=lambda _: [Table(("NODE", "ENDS IN", "WAITS FOR"), rows), way_out])

    printed = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert [line.rstrip() for line in printed.splitlines()] == [
        "NODE    WAITS FOR",
        "edge-1  it waits for its turn after all",
        "        the others",
        "",
        "    drawbridge rollout get edge -n web",
        "    shows why",
    ]


REPORT = """\
import cli.app
from cli.output import Output

cli.app.drawbridge = lambda **_: Output().show(1, lambda _: ["text"])
cli.app.main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("-m", "cli", "--help"), id="help"),
        pytest.param(("-m", "cli", "completion", "bash"), id="completion"),
        pytest.param(("-c", REPORT), id="a report"),
    ],
)
def test_output_that_cannot_be_written_is_one_error(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert found.stderr == "Error: cannot write the output: No space left on device\n"
    assert found.returncode == 1


def test_letters_that_the_terminal_lacks_are_escaped() -> None:
    report = REPORT.replace("text", "节点 node-1")
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    found = subprocess.run(
        [sys.executable, "-c", report], cwd=ROOT, env=environment, capture_output=True, check=False
    )

    assert (found.stdout, found.stderr) == (b"\\u8282\\u70b9 node-1\n", b"")


def test_ctrl_c_ends_a_command_while_the_api_server_does_not_answer(tmp_path: Path) -> None:
    with serving(lambda _: hangs) as server:
        command = subprocess.Popen(
            [sys.executable, "-m", "cli", "status", "--kubeconfig", written(tmp_path / "config", server.url)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        until(lambda: server.asked)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=10 * stretch())

    assert (command.returncode, errors) == (-signal.SIGINT, b"")
