"""The Dockerfile keeps to the rules of good images, and the build context is what it copies."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from settings import Settings
from tests import build_context as context
from tests.dockerfile import Instruction, parse
from tests.test_layers import FLOORS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = parse(TEXT)
RUNS = [each for each in INSTRUCTIONS if each.verb == "RUN"]
FROMS = [each for each in INSTRUCTIONS if each.verb == "FROM"]
FINAL = INSTRUCTIONS[INSTRUCTIONS.index(FROMS[-1]) :]


def only(verb: str) -> Instruction:
    (found,) = [each for each in FINAL if each.verb == verb]
    return found


def commands(word: str) -> list[str]:
    """The commands of all RUNs that contain *word*."""
    parts = [part.strip() for run in RUNS for part in re.split(r"&&|;|\|\|", run.text)]
    return [each for each in parts if word in each]


def copied() -> list[str]:
    copies = [each for each in INSTRUCTIONS if each.verb == "COPY" and "from" not in each.flags]
    return [source for each in copies for source in each.words({})[:-1]]


def test_the_base_is_a_build_argument_with_a_tag_and_a_digest_and_no_registry() -> None:
    [base_image] = [each for each in INSTRUCTIONS[: INSTRUCTIONS.index(FROMS[0])] if each.verb == "ARG"]

    assert re.fullmatch(r"BASE=[a-z]+:\d+\.\d+-slim@sha256:[0-9a-f]{64}", base_image.text)
    assert FROMS[0].text.startswith("${BASE} AS ")
    assert FROMS[-1].text == "scratch"


def test_no_secret_and_no_download_is_a_part_of_it() -> None:
    given = [name for each in INSTRUCTIONS if each.verb in ("ARG", "ENV") for name in each.pairs({})]

    assert given
    assert [name for name in given if re.search("PASS|SECRET|TOKEN|KEY|CREDENTIAL", name.upper())] == []
    assert not re.search(r"https?://|\b(ADD|curl|wget|git clone)\b", TEXT)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"line {run.line}")
def test_a_run_ends_at_its_first_failure(run: Instruction) -> None:
    """Parts are joined by &&, and a loop, whose exit code is its last round's, ends itself."""
    assert all(loop.endswith("|| exit 1; done") for loop in re.findall(r"do .*? done", run.text))
    assert not re.search(r"[;|]", re.sub(r"for .*? done", "", run.text))


def test_packages_of_python_come_pinned_whole_and_ready_made() -> None:
    [install] = commands("pip install")
    lines = (ROOT / "requirements.txt").read_text().splitlines()

    assert {"--no-cache-dir", "--no-deps", "--only-binary", ":all:"} <= set(install.split())
    assert install.endswith("requirements.txt")
    assert all(
        re.fullmatch(r"[\w.-]+==[\w.]+ \\| {4}--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in lines[1:]
    )


def test_the_product_is_copied_whole_and_is_all_of_the_build_context() -> None:
    found = context.files(ROOT)

    assert {*copied()} - {"requirements.txt", "LICENSE"} == {*FLOORS} | {
        "features.py",
        "gunicorn.conf.py",
        "wsgi.py",
    }
    assert {source for source in copied() if context.within(found, source)} == {*copied()}
    assert [path for path in found if not any(context.within([path], source) for source in copied())] == []


def test_it_runs_as_the_user_of_the_chart() -> None:
    """By number: runAsNonRoot refuses names."""
    values = (ROOT / "charts" / "drawbridge" / "values.yaml").read_text()

    assert only("USER").text == "65532:65532"
    assert "runAsUser: 65532\n  runAsGroup: 65532" in values


def test_the_webhook_server_is_started_without_a_shell() -> None:
    assert only("CMD").is_exec_form
    assert only("CMD").words({}) == ["gunicorn", "-c", "gunicorn.conf.py", "wsgi:app"]
    assert {each.verb for each in INSTRUCTIONS}.isdisjoint({"ENTRYPOINT", "HEALTHCHECK"})


def test_it_exposes_the_default_ports() -> None:
    settings = Settings()
    addresses = (settings.health.health_probe_bind_address, settings.metrics.bind_address)

    ports = {str(settings.webhook.port), *(each.rpartition(":")[2] for each in addresses)}
    assert {*only("EXPOSE").text.split()} == ports


def test_its_version_is_the_charts() -> None:
    arguments = {
        name: value for each in FINAL if each.verb == "ARG" for name, value in each.pairs({}).items()
    }
    labels = only("LABEL").pairs({"VERSION": arguments["VERSION"], "REVISION": "abc"})
    environment = [
        each.pairs({"VERSION": "0.2.0", "REVISION": "abc"}) for each in FINAL if each.verb == "ENV"
    ]
    assert {"DRAWBRIDGE_VERSION": "0.2.0", "DRAWBRIDGE_REVISION": "abc"} in environment

    chart = (ROOT / "charts" / "drawbridge" / "Chart.yaml").read_text()
    assert f'appVersion: "{labels["org.opencontainers.image.version"]}"' in chart


def test_the_last_rule_about_a_path_decides() -> None:
    rules = context.patterns("# a word\n*\n\n!webhook\n!wsgi.py\n**/__pycache__\n")

    paths = ["webhook/app.py", "webhook/elasticity/webhook.py", "wsgi.py"]
    paths += ["webhook/__pycache__/app.pyc", "tests/webhook", ".git/config"]
    assert [context.ignored(Path(path), rules) for path in paths] == [False] * 3 + [True] * 3
    ours = context.patterns((ROOT / ".dockerignore").read_text())
    assert context.ignored(Path("webhook/elasticity/__pycache__/gate.cpython-311.pyc"), ours)


def test_the_command_is_on_the_path(tmp_path: Path) -> None:
    [write] = commands("> drawbridge")
    script = tmp_path / "drawbridge"
    subprocess.run(["sh", "-c", write], cwd=tmp_path, check=True)
    lines = script.read_text().splitlines()

    assert lines[0] == "#!/opt/venv/bin/python3"
    assert 'sys.path.insert(0, "/app")' in lines
    assert lines[-2:] == ["from cli.app import main", "main()"]
    assert "/opt/venv/bin" in [each.pairs({}).get("PATH") for each in FINAL if each.verb == "ENV"]
    assert commands("chmod") == ["chmod 755 drawbridge"]
