"""What README's quick start relies on; tests/e2e/quick_start.py runs it where Docker runs."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import yaml

from dev.lab import binaries, chart
from dev.lab.binaries.table import versions
from tests.charts import helm_needed
from tests.pages import ROOT, blocks, commands

CLUSTER, POD = [block for block in blocks(ROOT / "README.md") if block.language == "sh"][:2]
STEPS = commands(CLUSTER)


def step(*begin: str) -> list[str]:
    """The rest of the only command that begins so."""
    [found] = [words for words in STEPS if words[: len(begin)] == [*begin]]
    return found[len(begin) :]


def image() -> str:
    [name] = [word for word in step("docker", "build") if ":" in word]
    return name


def test_it_takes_ten_lines() -> None:
    assert sum(len(block.text.splitlines()) for block in (CLUSTER, POD)) == 10


def test_the_cluster_leaves_the_network_to_the_calico_that_is_tested() -> None:
    [config] = [yaml.safe_load(words[0]) for words in STEPS if words[0].startswith("{")]
    address = step("kubectl", "create", "-f")[0]

    assert config["networking"]["disableDefaultCNI"] is True
    assert re.findall(r"v\d+\.\d+\.\d+", address) == [versions()["calico"]]


def test_each_step_names_the_same_cluster_and_image() -> None:
    loaded, *rest = step("kind", "load", "docker-image")
    name = step("kind", "create", "cluster")[:2]

    assert (loaded, rest) == (image(), name)


@helm_needed
def test_the_chart_runs_the_image_that_was_loaded() -> None:
    options = step("helm", "install")
    given = options[: options.index("--wait")]
    command = [str(binaries.ensure("helm")["helm"]), "template", *given]
    objects = rendered(subprocess.check_output(command, text=True, cwd=chart.ROOT))

    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    containers = [container for pod in pods for container in pod["containers"]]
    assert {each["image"] for each in containers} == {image()}
    assert {each["imagePullPolicy"] for each in containers} == {"IfNotPresent"}
    assert {each["kind"] for each in objects} >= {
        "ValidatingWebhookConfiguration",
        "ServiceAccount",
        "Service",
    }


def rendered(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]
