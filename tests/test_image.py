"""The Dockerfile keeps to the rules of good images, and the build context holds what it copies and nothing else."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import pytest

from lab.image import context
from lab.image.dockerfile import Instruction, parse
from settings import Settings
from tests.test_layers import FLOORS

ROOT = Path(__file__).parent.parent
INSTRUCTIONS = parse((ROOT / "Dockerfile").read_text())
RUNS = [each for each in INSTRUCTIONS if each.verb == "RUN"]
COPIES = [each for each in INSTRUCTIONS if each.verb == "COPY"]
FROMS = [each for each in INSTRUCTIONS if each.verb == "FROM"]
FINAL = INSTRUCTIONS[INSTRUCTIONS.index(FROMS[-1]) :]


def only(verb: str) -> Instruction:
    (found,) = [each for each in FINAL if each.verb == verb]
    return found


def commands(run: Instruction) -> list[str]:
    """What a RUN carries out, one after the other."""
    return [part.strip() for part in re.split(r"&&|;|\|\|", run.text)]


def copied_from_here() -> list[str]:
    return [source for each in COPIES if "from" not in each.flags for source in each.words({})[:-1]]


# The base


def test_the_base_is_a_build_argument_with_a_pinned_tag_and_no_registry() -> None:
    [base_image] = [each for each in INSTRUCTIONS[: INSTRUCTIONS.index(FROMS[0])] if each.verb == "ARG"]

    assert re.fullmatch(r"BASE=[a-z]+:\d+\.\d+-slim", base_image.text)
    assert FROMS[0].text.startswith("${BASE} AS ")


def test_every_other_stage_begins_with_an_earlier_one_or_with_nothing() -> None:
    named = [each.text.partition(" AS ")[2] for each in FROMS]

    assert [each.text.split()[0] in named[:number] for number, each in enumerate(FROMS)][1:-1] == [True] * (
        len(FROMS) - 2
    )
    assert FROMS[-1].text == "scratch"


def test_every_instruction_is_one_that_engines_still_recommend() -> None:
    allowed = {"ARG", "FROM", "RUN", "COPY", "ENV", "LABEL", "WORKDIR", "USER", "EXPOSE", "CMD"}

    assert {each.verb for each in INSTRUCTIONS} <= allowed
    assert [each.verb for each in INSTRUCTIONS].count("CMD") == 1


def test_every_directory_is_named_from_the_root() -> None:
    assert all(each.text.startswith("/") for each in INSTRUCTIONS if each.verb == "WORKDIR")


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: f"line {copy.line}")
def test_a_copy_says_where_from_and_where_to(copy: Instruction) -> None:
    """From a stage that is finished, by its name; and into a directory that the stage has chosen itself."""
    above = INSTRUCTIONS[: INSTRUCTIONS.index(copy)]
    stages = [each for each in above if each.verb == "FROM"]
    *_, target = copy.words({})
    here = above[above.index(stages[-1]) :]

    if origin := copy.flags.get("from"):
        assert origin in {each.text.partition(" AS ")[2] for each in stages[:-1]}
    assert target.startswith("/") or any(each.verb == "WORKDIR" for each in here)


def test_runs_that_follow_each_other_are_one_layer() -> None:
    following = itertools.pairwise(INSTRUCTIONS)

    assert [(one.line, other.line) for one, other in following if one.verb == other.verb == "RUN"] == []


def test_nothing_secret_is_given_to_it() -> None:
    given = [name for each in INSTRUCTIONS if each.verb in ("ARG", "ENV") for name in each.pairs({})]

    assert given
    assert [name for name in given if re.search("PASS|SECRET|TOKEN|KEY|CREDENTIAL", name.upper())] == []


# What is run to make it


def test_nothing_is_added_from_an_address() -> None:
    assert [each for each in INSTRUCTIONS if each.verb == "ADD"] == []
    assert not re.search(r"https?://|\b(curl|wget|git clone)\b", (ROOT / "Dockerfile").read_text())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"line {run.line}")
def test_a_run_ends_at_its_first_failure(run: Instruction) -> None:
    """Parts are joined by &&, and a loop, whose exit code is its last round's, says itself when to end."""
    loops = re.findall(r"do .*? done", run.text)

    assert all(loop.endswith("|| exit 1; done") for loop in loops)
    outside = re.sub(r"for .*? done", "", run.text)
    assert ";" not in outside
    assert "|" not in outside


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"line {run.line}")
def test_lists_of_packages_are_fetched_and_removed_where_they_are_used(run: Instruction) -> None:
    wants = [each for each in commands(run) if re.match(r"apt-get (install|download)", each)]

    assert ("apt-get update" in commands(run)) is bool(wants)
    assert ("rm -rf /var/lib/apt/lists/*" in commands(run)) is bool(wants)
    for each in wants:
        assert each.startswith("apt-get download") or {"--yes", "--no-install-recommends"} <= set(
            each.split()
        )


def test_no_part_asks_to_be_root_or_upgrades_what_is_there() -> None:
    words = {word for run in RUNS for word in run.text.split()}

    assert not words & {"sudo", "su", "upgrade", "dist-upgrade", "apt"}


def test_packages_of_python_come_pinned_whole_and_ready_made() -> None:
    [install] = [each for run in RUNS for each in commands(run) if "pip install" in each]
    lines = (ROOT / "requirements.txt").read_text().splitlines()

    assert {"--no-cache-dir", "--no-deps", "--only-binary", ":all:"} <= set(install.split())
    assert install.endswith("requirements.txt")
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines if not line.startswith("#"))


def test_bytecode_is_made_of_all_three_parts_and_never_compared_with_its_source() -> None:
    made = [each for run in RUNS for each in commands(run) if "compileall" in each]

    assert len(made) == 3
    assert all("--invalidation-mode unchecked-hash" in each for each in made)


# What is copied


@pytest.mark.parametrize("source", copied_from_here())
def test_what_is_copied_is_there_and_belongs_to_the_repository(source: str) -> None:
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", source],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert known.stdout


def test_the_product_is_copied_whole() -> None:
    programs = {"gunicorn.conf.py", "wsgi.py"}

    assert {*copied_from_here()} - {"requirements.txt", "LICENSE"} == {*FLOORS} | programs


def test_directories_keep_their_names() -> None:
    """A directory's content is what is copied: without a name of its own it would be mixed with others."""
    for each in COPIES:
        *sources, target = each.words({})
        if "from" not in each.flags and (ROOT / sources[0]).is_dir():
            assert sources == [target]


def test_the_build_context_is_what_is_copied() -> None:
    wanted = copied_from_here()
    found = context.files(ROOT)

    assert {source for source in wanted if context.within(found, source)} == {*wanted}
    assert [
        path for path in found if not any(path in context.within([path], source) for source in wanted)
    ] == []


def test_the_build_context_has_no_bytecode_of_this_machine() -> None:
    rules = context.patterns((ROOT / ".dockerignore").read_text())

    assert context.ignored(Path("webhook/__pycache__/app.cpython-311.pyc"), rules)
    assert context.ignored(Path("webhook/elasticity/__pycache__/gate.cpython-311.pyc"), rules)


# What is left in the end


def test_it_runs_as_a_user_that_the_kubelet_can_tell_from_root() -> None:
    """By number: runAsNonRoot refuses names. It is the one that the chart asks for."""
    values = (ROOT / "charts" / "drawbridge" / "values.yaml").read_text()

    assert only("USER").text == "65532:65532"
    assert "runAsUser: 65532\n  runAsGroup: 65532" in values


def test_programs_are_started_without_a_shell() -> None:
    assert all(each.is_exec_form for each in INSTRUCTIONS if each.verb in ("CMD", "ENTRYPOINT"))
    assert only("CMD").words({}) == ["gunicorn", "-c", "gunicorn.conf.py", "wsgi:app"]


def test_it_tells_the_ports_on_which_the_chart_calls_it() -> None:
    settings = Settings()
    addresses = (settings.health.health_probe_bind_address, settings.metrics.bind_address)
    ports = {str(settings.webhook.port), *(each.rpartition(":")[2] for each in addresses)}

    assert {*only("EXPOSE").text.split()} == ports


def test_the_cluster_and_not_the_image_asks_for_its_health() -> None:
    assert [each for each in INSTRUCTIONS if each.verb == "HEALTHCHECK"] == []


def test_it_says_what_it_is_in_the_words_of_the_oci() -> None:
    labels = only("LABEL").pairs({"VERSION": "1.2.3", "REVISION": "abc"})
    prefix = "org.opencontainers.image."

    assert {name.removeprefix(prefix) for name in labels} == {
        "title",
        "description",
        "licenses",
        "version",
        "revision",
    }
    assert (labels[f"{prefix}version"], labels[f"{prefix}revision"]) == ("1.2.3", "abc")


def test_its_version_is_the_charts() -> None:
    chart = (ROOT / "charts" / "drawbridge" / "Chart.yaml").read_text()

    assert f'appVersion: "{arguments()["VERSION"]}"' in chart


def arguments() -> dict[str, str]:
    return {name: value for each in FINAL if each.verb == "ARG" for name, value in each.pairs({}).items()}


def test_what_changes_seldom_lies_below_what_changes_often() -> None:
    targets = [each.words({})[-1] for each in FINAL if each.verb == "COPY"]

    assert [targets[0], *targets[-2:]] == ["/", "/opt/venv", "/app"]
