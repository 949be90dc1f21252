"""`python -m dev.lab.kustomize NAMESPACE DIRECTORY`: write deploy/ with its components for another namespace.

A component is what a set of values changes of deploy/install.yaml.
"""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dev.lab import chart
from dev.lab.errors import LabError
from dev.lab.install import merged
from dev.lab.repository import ROOT

DEPLOY = ROOT / "deploy"
COMPONENTS = "components"
CONFIG = "drawbridge-config"
READ_AT_START = "drawbridge.io/read-at-start"
GIVEN = {"clusterID": "cls-0", "region": "ap-region"}
"""Values that only the operator knows, as keys of the ConfigMap drawbridge-anycast-ip; each with what stands for it."""
FEATURES: dict[str, dict[str, Any]] = {
    "anycast-ip": {
        "anycastIP": {"enabled": True, "clusterID": GIVEN["clusterID"]},
        "cloud": {"region": GIVEN["region"], "existingSecret": "drawbridge-cloud-keys"},
    },
    "elasticity": {"elasticity": {"enabled": True, "advanced": {"openGates": "controllers"}}},
    "ingress-daemonset": {"ingressDaemonSet": {"enabled": True}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "cert-manager": {"certs": {"mode": "cert-manager"}},
    "monitoring": {
        "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboards")}
    },
}
HEAD = "# Made of charts/drawbridge by `make manifests`.\n"
Key = tuple[str, str, str]
Object = dict[str, Any]
Objects = dict[Key, Object]


def main(namespace: str, directory: str) -> None:
    target = Path(directory)
    shutil.copytree(DEPLOY, target, ignore=shutil.ignore_patterns(COMPONENTS))
    text = (DEPLOY / "namespace.yaml").read_text()
    (target / "namespace.yaml").write_text(text.replace(f"name: {chart.NAMESPACE}\n", f"name: {namespace}\n"))
    (target / "install.yaml").write_text(HEAD + _documents(rendered({}, namespace).values()))
    write(target, namespace)


def write(directory: Path = DEPLOY, namespace: str = chart.NAMESPACE) -> None:
    shutil.rmtree(directory / COMPONENTS, ignore_errors=True)
    for name, text in made(namespace).items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def made(namespace: str = chart.NAMESPACE) -> dict[str, str]:
    """Each file below deploy/ with its text."""
    base = rendered({}, namespace)
    features = {name: rendered(values, namespace) for name, values in FEATURES.items()}
    shared = _shared(base, features)
    policy = rendered(merged(FEATURES["anycast-ip"], {"admission": {"mutations": "policy"}}), namespace)
    policies = [each for key, each in policy.items() if key[0].startswith("MutatingAdmissionPolicy")]
    found = {
        "shared.yaml": HEAD + _documents(shared.values()),
        "anycast-ip-policy.yaml": HEAD + _documents(policies),
    }
    everything = functools.reduce(merged, FEATURES.values())
    whole = rendered(everything, namespace)
    for name, after in features.items():
        found |= _component(name, base | shared, shared | after)
    # A patch of what only one feature adds has no effect without that feature.
    patched = [*shared, *(key for key, each in whole.items() if "webhooks" in each and key not in shared)]
    for name, values in OTHERS.items():
        before = base | {key: whole[key] for key in patched}
        together = rendered(merged(everything, values), namespace)
        later = {key: each for key, each in together.items() if key in patched or key not in whole}
        found |= _component(name, before, {**later, **_of(base, rendered(values, namespace))})
    return found


def _of(base: Objects, after: Objects) -> Objects:
    return {key: each for key, each in after.items() if key in base}


def rendered(values: Mapping[str, Any], namespace: str) -> Objects:
    text = chart.manifests(yaml.safe_dump(dict(values)), "--skip-tests", "--namespace", namespace)
    return {key_of(each): each for each in yaml.safe_load_all(text) if each}


def key_of(found: Object) -> Key:
    return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _shared(base: Objects, features: Mapping[str, Objects]) -> Objects:
    """What several features add, or others patch. It limits accounts without such a permission, or is empty then."""
    times = [key for found in features.values() for key in found if key not in base]
    several = {
        key: each
        for found in features.values()
        for key, each in found.items()
        if times.count(key) > 1 or ("webhooks" in each and key not in base)
    }
    return {key: each | ({"webhooks": []} if "webhooks" in each else {}) for key, each in several.items()}


def _component(name: str, before: Objects, after: Objects) -> dict[str, str]:
    added = [each for key, each in after.items() if key not in before]
    config = next(key for key in before if key[2] == CONFIG)
    lines = _changed_lines(before[config], after[config])
    parts = {
        "resources": ["resources.yaml"],
        "patches": [*_patches(name, before, after), *_deletions(before, after)],
        "replacements": [*_replacements(name, lines)],
    }
    head = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
    found = {key: part for key, part in parts.items() if part}
    texts = [*added, *([_lines_object(name, lines)] if lines else [])]
    return {
        f"{COMPONENTS}/{name}/kustomization.yaml": HEAD + _dump(head | found),
        f"{COMPONENTS}/{name}/resources.yaml": HEAD + _documents(texts),
    }


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if text.rstrip("\n").count("\n") else None
    )


_Dumper.add_representer(str, _text)


def _dump(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=160))


def _documents(objects: Iterable[Object]) -> str:
    return "---\n".join(_dump(each) for each in objects)


# The configuration file is one text: its lines are replaced by those of an object that kustomize does not put out.


def _changed_lines(before: Object, after: Object) -> dict[int, str]:
    old, new = (each["data"]["config.yaml"].split("\n") for each in (before, after))
    if len(old) != len(new):
        raise LabError(
            "config.yaml has another number of lines with a feature: components replace them by number"
        )
    return {at: line for at, (was, line) in enumerate(zip(old, new, strict=True)) if was != line}


def _lines_object(name: str, lines: Mapping[int, str]) -> Object:
    local = {"config.kubernetes.io/local-config": "true"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"lines-of-{name}", "annotations": local},
        "data": {f"line-{at}": line for at, line in lines.items()},
    }


def _replacements(name: str, lines: Mapping[int, str]) -> Iterator[Object]:
    for at, line in lines.items():
        ours = {"kind": "ConfigMap", "name": f"lines-of-{name}"}
        for given, stands_for_it in GIVEN.items():
            if line.endswith(f': "{stands_for_it}"'):
                source = {"kind": "ConfigMap", "name": f"drawbridge-{name}", "fieldPath": f"data.{given}"}
                yield _replacement(source, ours, f"data.line-{at}", '"', 1)
        source = ours | {"fieldPath": f"data.line-{at}"}
        yield _replacement(source, {"kind": "ConfigMap", "name": CONFIG}, "data.[config.yaml]", "\n", at)


def _replacement(source: Object, target: Object, path: str, delimiter: str, index: int) -> Object:
    options = {"delimiter": delimiter, "index": index}
    return {"source": source, "targets": [{"select": target, "fieldPaths": [path], "options": options}]}


def _deletions(before: Objects, after: Objects) -> Iterator[Object]:
    for kind, namespace, name in before:
        if (kind, namespace, name) not in after:
            found = before[kind, namespace, name]
            metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
            gone = {"apiVersion": found["apiVersion"], "kind": kind, "metadata": metadata, "$patch": "delete"}
            yield {"patch": _dump(gone)}


def _patches(name: str, before: Objects, after: Objects) -> Iterator[Object]:
    for kind, namespace, named in before:
        found = after.get((kind, namespace, named))
        operations = [*_operations(name, before[kind, namespace, named], found)] if found else []
        if operations:
            target = {"kind": kind, "name": named} | ({"namespace": namespace} if namespace else {})
            yield {"target": target, "patch": _dump(operations)}


def _operations(name: str, old: Any, new: Any, path: str = "") -> Iterator[Object]:
    """What makes *new* of *old*, so that several components can be applied: lists are extended at their end."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _of_key(name, old, new, key, path)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == 1:
        yield from _operations(name, old[0], new[0], f"{path}/0")
    elif isinstance(old, list) and isinstance(new, list):
        for at in reversed([at for at, each in enumerate(old) if each not in new]):
            yield {"op": "test", "path": f"{path}/{at}", "value": old[at]}
            yield {"op": "remove", "path": f"{path}/{at}"}
        yield from ({"op": "add", "path": f"{path}/-", "value": each} for each in new if each not in old)
    elif old != new and not path.endswith("/config.yaml"):
        yield {"op": "replace", "path": path, "value": new}


def _of_key(name: str, old: Object, new: Object, key: str, path: str) -> Iterator[Object]:
    place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
    if key == READ_AT_START and old.get(key) != new.get(key):
        # Each component has a separate annotation: pods are replaced when any of them changes.
        yield {"op": "add", "path": f"{place}-{name}", "value": new[key]}
    elif key not in new:
        yield {"op": "remove", "path": place}
    elif key not in old:
        yield {"op": "add", "path": place, "value": new[key]}
    else:
        yield from _operations(name, old[key], new[key], place)


if __name__ == "__main__":
    main(*sys.argv[1:])
