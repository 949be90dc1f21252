"""deploy/ and its components build what the chart renders for the same features, alone and together."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.lab import chart, kustomize, manifests
from dev.lab.install import merged
from dev.lab.kustomize import FEATURES, OTHERS, READ_AT_START, Objects
from tests.charts import helm_needed
from tests.test_manifests import block, kustomized

pytestmark = helm_needed

COMPONENTS = FEATURES | OTHERS
GIVEN = {"anycastIP": {"clusterID": "cls-12345678"}, "cloud": {"region": "ap-singapore"}}
NAMES = [*[(name,) for name in COMPONENTS], (*FEATURES,), (*COMPONENTS,), (*reversed(COMPONENTS),)]


def test_the_components_are_what_the_chart_renders_now() -> None:
    for name, text in kustomize.made().items():
        assert (kustomize.DEPLOY / name).read_text() == text, "run: make manifests"
    assert {each.name for each in (kustomize.DEPLOY / kustomize.COMPONENTS).iterdir()} == set(COMPONENTS)


def built(directory: Path, components: tuple[str, ...], namespace: str = chart.NAMESPACE) -> Objects:
    if namespace == chart.NAMESPACE:
        shutil.copytree(manifests.DEPLOY, directory / "deploy")
    else:
        kustomize.main(namespace, str(directory / "deploy"))
    (directory / "mine").mkdir(parents=True)
    _, settings = block("# kustomization.yaml").split("\n---\n")
    (directory / "mine" / "settings.yaml").write_text(settings)
    given = {
        "resources": ["../deploy", *(["settings.yaml"] if "anycast-ip" in components else [])],
        "components": [f"../deploy/components/{name}" for name in components],
    }
    (directory / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(given))
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in kustomized(directory / "mine")
        if each["kind"] != "Namespace"
    }


def rendered(components: tuple[str, ...], namespace: str = chart.NAMESPACE) -> Objects:
    values = functools.reduce(merged, (COMPONENTS[name] for name in components), {})
    if "anycast-ip" in components:
        values = merged(values, GIVEN)
    return kustomize.rendered(values, namespace)


def alike(value: Any, name: str = "") -> Any:
    """Without what has no meaning: the order of rules, webhooks and volumes, and the marks of what needs a restart."""
    if isinstance(value, dict):
        return {
            key: alike(each, key)
            for key, each in value.items()
            if not key.startswith(READ_AT_START) and each != []
        }
    if isinstance(value, list) and name in ("rules", "webhooks", "volumes", "volumeMounts"):
        return sorted((alike(each) for each in value), key=functools.partial(json.dumps, sort_keys=True))
    if isinstance(value, list):
        return [alike(each) for each in value]
    return value


def only_restricts(key: tuple[str, str, str], found: dict[str, Any]) -> bool:
    """What is there without its features: policies for our own accounts, and a configuration without webhooks."""
    return key[0].startswith("ValidatingAdmissionPolicy") or found.get("webhooks") == []


def test_components_build_what_the_chart_renders(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, names in enumerate(NAMES):
        found, wanted = built(tmp_path / str(number), names), rendered(names)

        with subtests.test("+".join(names)):
            assert wanted.keys() - found.keys() == set()
            others = [key for key in found.keys() - wanted.keys() if not only_restricts(key, found[key])]
            assert [key for key in others if key[0] not in MONITORING or "monitoring" not in names] == []
            assert [
                key
                for key, each in wanted.items()
                if alike(found[key]) != alike(each) and (key[0] not in MONITORING or {*FEATURES} <= {*names})
            ] == []


MONITORING = ("PrometheusRule", "PodMonitor", "ConfigMap")
"""The component monitoring has alerts, monitors and dashboards of every feature: what is not there has no metrics."""


def test_the_kustomization_of_the_install_page_combines_a_feature_with_cert_manager(tmp_path: Path) -> None:
    shutil.copytree(manifests.DEPLOY, tmp_path / "drawbridge" / "deploy")
    (tmp_path / "mine").mkdir()
    for name, text in zip(
        ("kustomization.yaml", "anycast-ip.yaml"), block("# kustomization.yaml").split("\n---\n"), strict=True
    ):
        (tmp_path / "mine" / name).write_text(text)

    found = {(each["kind"], each["metadata"]["name"]): each for each in kustomized(tmp_path / "mine")}
    wanted = rendered(("anycast-ip", "cert-manager"))
    assert {(kind, name) for kind, _, name in wanted} <= found.keys()
    config = found["ConfigMap", "drawbridge-config"]["data"]["config.yaml"]
    assert config == wanted["ConfigMap", "drawbridge", "drawbridge-config"]["data"]["config.yaml"]
    assert ("ConfigMap", "drawbridge-anycast-ip") not in found


def test_all_of_it_can_be_written_for_another_namespace(tmp_path: Path) -> None:
    names = (*COMPONENTS,)

    found, wanted = built(tmp_path, names, "gatekeeping"), rendered(names, "gatekeeping")
    assert found.keys() == wanted.keys()
    assert [key for key, each in wanted.items() if alike(found[key]) != alike(each)] == []
    assert "name: gatekeeping\n" in (tmp_path / "deploy" / "namespace.yaml").read_text()
