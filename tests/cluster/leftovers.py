"""What an uninstallation leaves in a cluster, found by asking for every object of every kind that is served."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controllers.anycast_ip.claim import KIND as CLAIM
from dev.lab.install import NAMESPACE, RELEASE
from kube.client import Client
from settings.anycast_ip import NEED_LABEL
from tests.cluster.elasticity import SUPER

Raw = dict[str, Any]

OURS = re.compile(
    r"drawbridge(?!\.io/lab\b)|ip-reserve|aia-|anycast-ip|eklet|eks-|ingress-?daemon|mumoshu",
    re.IGNORECASE,
)
"""Each name that Drawbridge gives to anything has one of these in it."""
JUDGES = (
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "MutatingAdmissionPolicy",
)
"""The kinds whose objects can refuse requests."""


def everything(client: Client) -> Iterator[Raw]:
    """Each object but Events, with its kind."""
    groups = [each["preferredVersion"]["groupVersion"] for each in client.request("GET", "/apis")["groups"]]
    for root in ("/api/v1", *(f"/apis/{each}" for each in groups)):
        for resource in client.request("GET", root)["resources"]:
            if "list" in resource["verbs"] and resource["kind"] != "Event":
                listed = client.request("GET", f"{root}/{resource['name']}")["items"] or ()
                yield from ({**each, "kind": resource["kind"]} for each in listed)


def blockers(client: Client) -> list[str]:
    """What of ours could refuse a request, or hold a deletion up."""
    return [f"{_name(each)}: {why}" for each in everything(client) if (why := _blocks(each))]


def stays(client: Client) -> dict[str, list[str]]:
    """The names of the objects that have something of ours, by what the docs call them, or by "" if they do not."""
    found: dict[str, list[str]] = {}
    for each in everything(client):
        if OURS.search(_text(each)):
            found.setdefault(_documented(each), []).append(_name(each))
    return found


def _blocks(each: Raw) -> str:
    spec = each.get("spec") or {}
    if each["kind"] in JUDGES:
        return "reviews requests"
    if each["kind"] == "APIService" and "service" in spec:
        return "is served by a Service"
    if each["kind"] == "CustomResourceDefinition" and spec["conversion"]["strategy"] != "None":
        return "is converted by a webhook"
    held = [name for name in each["metadata"].get("finalizers", ()) if OURS.search(name)]
    return f"waits for {held}" if held else ""


def _text(each: Raw) -> str:
    metadata = {key: value for key, value in each["metadata"].items() if key != "managedFields"}
    return json.dumps({**each, "metadata": metadata})


def _name(each: Raw) -> str:
    metadata = each["metadata"]
    return f"{each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"


def _documented(each: Raw) -> str:
    return next((name for name, is_it in STAYS.items() if is_it(each)), "")


def _is(kind: str, namespace: str, name: str) -> Callable[[Raw], bool]:
    return lambda each: _name(each) == f"{kind} {namespace}/{name}"


def _labelled(kind: str, label: str) -> Callable[[Raw], bool]:
    return lambda each: each["kind"] == kind and label in each["metadata"].get("labels", {})


def _is_in(namespaces: str, *kinds: str) -> Callable[[Raw], bool]:
    """One of these kinds, in a namespace whose name begins so."""
    return lambda each: each["kind"] in kinds and each["metadata"].get("namespace", "").startswith(namespaces)


DEFINITION = "ingressdaemonsets.ingressdaemonsets.mumoshu.github.io"
STAYS: Mapping[str, Callable[[Raw], bool]] = {
    "the Lease": _is("Lease", NAMESPACE, RELEASE),
    "claims": _labelled("ConfigMap", CLAIM),
    # What Kubernetes puts into each namespace is there as long as that is.
    "the namespace": lambda each: (
        _is("Namespace", "", NAMESPACE)(each)
        or _is("ServiceAccount", NAMESPACE, "default")(each)
        or _is("ConfigMap", NAMESPACE, "kube-root-ca.crt")(each)
    ),
    "IPReservations": lambda each: each["kind"] == "IPReservation",
    "labels ip-reserve": _labelled("Namespace", "ip-reserve"),
    "the cluster's uuid": _is("ConfigMap", "kube-system", "aia-official-cluster-uuid"),
    "super nodes": lambda each: (
        each["kind"] in ("Node", "Lease") and each["metadata"]["name"].startswith(SUPER)
    ),
    "nodes with their addresses and taints": _labelled("Node", NEED_LABEL),
    "placed and gated pods": _is_in("shop-", "Pod"),
    "IngressDaemonSets and theirs": _is_in(
        "edge-",
        "IngressDaemonSet",
        "Deployment",
        "ReplicaSet",
        "DaemonSet",
        "ControllerRevision",
        "RoleBinding",
        "Pod",
    ),
    "the definition of the kind": lambda each: (
        _is("CustomResourceDefinition", "", DEFINITION)(each)
        or _is("APIService", "", "v1alpha1.ingressdaemonsets.mumoshu.github.io")(each)
    ),
}
"""What the docs tell of, in their order of words."""
