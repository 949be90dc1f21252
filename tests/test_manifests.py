"""The plain manifests are what the chart renders, and kustomize can build on them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import binaries, manifests
from lab.errors import LabError
from tests.charts import helm_needed, render
from tests.pages import ROOT, blocks

INSTALL = manifests.DEPLOY / "install.yaml"


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def named(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def kustomized(directory: Path) -> list[dict[str, Any]]:
    kubectl = str(binaries.ensure("kubectl")["kubectl"])
    done = subprocess.run([kubectl, "kustomize", str(directory)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return documents(done.stdout)


@helm_needed
def test_the_manifests_are_what_the_chart_renders_now() -> None:
    assert INSTALL.read_text() == manifests.rendered(), "run: make manifests"


@helm_needed
def test_two_renderings_are_the_same() -> None:
    assert manifests.rendered() == manifests.rendered()


@helm_needed
def test_they_are_all_that_helm_would_install_but_for_its_test() -> None:
    installed = {key for key in render() if key[0] != "Pod"}

    # The tests' own values bring a certificate, which the manifests need not.
    assert named(documents(INSTALL.read_text())) == installed | {("Secret", "drawbridge-webhook-tls")}


@helm_needed
def test_a_chart_that_cannot_be_rendered_is_told_in_helms_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "values.yaml").write_text("replicaCount: 0\n")
    monkeypatch.setattr(manifests, "DEPLOY", tmp_path)

    with pytest.raises(LabError, match=r"(?s)^the chart cannot be rendered: .*/replicaCount"):
        manifests.rendered()


def test_nobody_is_said_to_look_after_them() -> None:
    objects = documents(INSTALL.read_text())
    labels = [each["metadata"].get("labels", {}) for each in objects]
    labels += [
        each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] == "Deployment"
    ]

    assert {"app.kubernetes.io/managed-by", "helm.sh/chart"}.isdisjoint(set().union(*labels))
    assert all(each["app.kubernetes.io/name"] == "drawbridge" for each in labels)


def test_all_of_them_are_in_the_namespace_that_comes_with_them() -> None:
    [namespace] = documents((manifests.DEPLOY / "namespace.yaml").read_text())
    found = {each["metadata"].get("namespace") for each in documents(INSTALL.read_text())}

    assert found == {None, namespace["metadata"]["name"]}


@helm_needed
def test_kustomize_takes_them_whole() -> None:
    whole = named(documents(INSTALL.read_text())) | {("Namespace", "drawbridge")}

    assert named(kustomized(manifests.DEPLOY)) == whole


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
def test_the_network_policy_of_the_install_page_is_taken() -> None:
    objects = render(yaml.safe_load(block("networkPolicy:")))

    policies = [each["spec"] for (kind, _), each in objects.items() if kind == "NetworkPolicy"]
    assert [each["policyTypes"] for each in policies] == [["Ingress", "Egress"]] * 2
