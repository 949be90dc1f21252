"""The plain manifests are what the chart renders, and kustomize can build on them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from dev.lab import binaries, manifests, values_schema
from tests.charts import helm_needed, render
from tests.pages import ROOT, blocks

INSTALL = manifests.DEPLOY / "install.yaml"


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def named(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def kustomized(directory: Path) -> list[dict[str, Any]]:
    kubectl = str(binaries.ensure("kubectl")["kubectl"])
    done = subprocess.run([kubectl, "kustomize", str(directory)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return documents(done.stdout)


def test_the_checks_of_values_are_those_of_the_settings() -> None:
    assert values_schema.SCHEMA.read_text() == values_schema.schema(), "run: make manifests"
    assert values_schema.CHECKS.read_text() == values_schema.checks(), "run: make manifests"


@helm_needed
def test_the_manifests_are_what_the_chart_renders_now() -> None:
    assert INSTALL.read_text() == manifests.rendered(), "run: make manifests"


@helm_needed
def test_they_are_what_helm_would_install_without_its_test_in_their_own_namespace() -> None:
    installed = documents(INSTALL.read_text())
    [namespace] = documents((manifests.DEPLOY / "namespace.yaml").read_text())

    assert named(installed) == {key for key in render() if key[0] != "Pod"}
    assert {each["metadata"].get("namespace") for each in installed} == {None, namespace["metadata"]["name"]}
    labels = set().union(*(each["metadata"].get("labels", {}) for each in installed))
    assert {"app.kubernetes.io/managed-by", "helm.sh/chart"}.isdisjoint(labels)
    shared = named(documents((manifests.DEPLOY / "shared.yaml").read_text()))
    assert named(kustomized(manifests.DEPLOY)) == named(installed) | shared | {("Namespace", "drawbridge")}


def block(beginning: str) -> str:
    """The YAML of the install page that begins so."""
    texts = [each.text for each in blocks(ROOT / "docs" / "how-to" / "install.md") if each.language == "yaml"]
    [text] = [each for each in texts if each.startswith(beginning)]
    return text


@helm_needed
def test_the_kustomization_of_the_install_page_changes_what_it_says(tmp_path: Path) -> None:
    shutil.copytree(manifests.DEPLOY, tmp_path / "drawbridge" / "deploy")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(block("resources:"))

    objects = kustomized(tmp_path / "mine")
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    assert len(pods) == 2
    assert {pod["containers"][0]["image"] for pod in pods} == {"registry.example/team/drawbridge:0.1.0"}
    assert [pod["tolerations"] for pod in pods] == [[{"operator": "Exists"}]] * 2


@helm_needed
def test_the_network_policy_of_the_install_page_is_accepted() -> None:
    objects = render(yaml.safe_load(block("networkPolicy:")))

    policies = [each["spec"] for (kind, _), each in objects.items() if kind == "NetworkPolicy"]
    assert [each["policyTypes"] for each in policies] == [["Ingress", "Egress"]] * 2
