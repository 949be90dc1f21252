"""The command on the fake API server, with Drawbridge installed as deploy/install.yaml does it."""

from __future__ import annotations

import copy
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import cache
from pathlib import Path
from typing import Any

import structlog
import yaml
from click.testing import CliRunner, Result

from certs.issue import Pair, new_ca, new_leaf
from cli.app import drawbridge
from cli.cluster import Cluster
from dev.fake_api import BUILT_IN, CALICO_V3, INGRESS_DAEMONSETS, FakeAPI, Kind, connection_to
from dev.fake_api.calls import Reply, Request
from kube.client import Resource
from tests.factories import NOW

MANIFEST = Path(__file__).parent.parent / "deploy" / "install.yaml"
HOST = "drawbridge-webhook.drawbridge.svc"
FEATURES = ("anycastIP", "elasticity", "ingressDaemonSet")
CLUSTER_ID = "cls-ab12cd34"
PATHS = {
    ("MutatingWebhookConfiguration", "drawbridge"): {
        "anycastIP": ["/mutate/nodes/anycast-ip"],
        "elasticity": ["/mutate/pods/elasticity", "/mutate/daemonsets/elasticity"],
        "ingressDaemonSet": ["/mutate/ingressdaemonsets"],
    },
    ("ValidatingWebhookConfiguration", "drawbridge-ingress-daemonset"): {
        "ingressDaemonSet": ["/validate/ingressdaemonsets", "/validate/evictions/ingress-daemonset"]
    },
}
INSTALLED = ("ConfigMap", "Deployment", "Secret", "ServiceAccount", "ValidatingWebhookConfiguration")
"""Kinds of the manifest that are there."""
COUNTS = ("replicas", "updatedReplicas", "readyReplicas")
METADATA = {"labels": {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/instance": "drawbridge"}}


def run(api: FakeAPI, *arguments: str, answer: str | None = None, namespace: str = "default") -> Result:
    """Call it with *arguments*, in a context of this *namespace*; *answer* is what the user types."""
    cluster = cluster_of(api, namespace)
    return called(*arguments, input=answer, obj=lambda _options: cluster)


def called(*arguments: str, **options: Any) -> Result:
    """In this process, whose logs stay as they are."""
    logs = structlog.get_config()
    try:
        result = CliRunner().invoke(drawbridge, arguments, **options)
    finally:
        structlog.configure(**logs)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def cluster_of(api: FakeAPI, namespace: str = "default") -> Cluster:
    """As the command connects to it; both have one clock."""
    return Cluster(api.client(), namespace, connection_to(api), api.now)


def shown(api: FakeAPI, *arguments: str) -> Any:
    """What it prints as JSON."""
    result = run(api, *arguments, "-o", "json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def installed(*features: str, leads: bool = True, kinds: Sequence[Kind] = ()) -> FakeAPI:
    """A healthy installation at NOW, with these features on besides IP reservation, and more *kinds* served."""
    api = FakeAPI(*BUILT_IN, *CALICO_V3, *INGRESS_DAEMONSETS, *kinds, now=lambda: NOW)
    api.ensure_namespace("default")
    for raw in copy.deepcopy(_manifest()):
        if raw["kind"] in INSTALLED:
            api.put(resource(raw["kind"]), _prepared(raw, features))
    if leads:
        api.put(resource("Lease"), lease(NOW))
    _register(api, features)
    return api


def _register(api: FakeAPI, features: Sequence[str]) -> None:
    """As the chart does it for *features*, but for rules: none is called."""
    for (kind, name), paths in PATHS.items():
        wanted = [path for feature in features for path in paths.get(feature, ())]
        if webhooks := [_webhook(path) for path in wanted]:
            api.put(resource(kind), {"metadata": METADATA | {"name": name}, "webhooks": webhooks})


def _webhook(path: str) -> dict[str, Any]:
    service = {"name": "drawbridge-webhook", "namespace": "drawbridge", "path": path}
    bundle = b64encode(authority().certificate).decode()
    return {
        "name": f"{path[1:].replace('/', '-')}.drawbridge.io",
        "clientConfig": {"service": service, "caBundle": bundle},
    }


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def answered(call: Request, date: str = "", forbidden: str = "$^") -> Reply | None:
    """What the fake API server does not serve: its version, reviews of access, the proxy of Services."""
    body: dict[str, Any] | None = None
    if call.path == "/version":
        body = {"gitVersion": "v1.34.1"}
    elif "accessreviews" in call.path:
        body = {"status": {"allowed": not re.search(forbidden, json.dumps(call.body["spec"]))}}
    elif "/proxy/" in call.path:
        response = {"uid": call.body["request"]["uid"], "allowed": True}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    headers = {"Date": date or http_date(NOW)}
    return Reply(200, json.dumps(body).encode(), headers) if body else None


def configure(api: FakeAPI, section: str, **fields: Any) -> None:
    """Change these settings of the installation."""
    (held,) = [each for each in api.list(resource("ConfigMap")) if "config.yaml" in each.get("data", {})]
    document = yaml.safe_load(held["data"]["config.yaml"])
    document[section] |= fields
    api.put(resource("ConfigMap"), held | {"data": {"config.yaml": yaml.safe_dump(document)}})


def lease(renewed: datetime) -> dict[str, Any]:
    spec = {"holderIdentity": "drawbridge-controllers-a", "leaseDurationSeconds": 15}
    times = dict.fromkeys(("acquireTime", "renewTime"), renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    return {"metadata": {"name": "drawbridge", "namespace": "drawbridge"}, "spec": spec | times}


def _prepared(raw: dict[str, Any], features: tuple[str, ...]) -> dict[str, Any]:
    match raw["kind"]:
        case "Deployment":
            counts = dict.fromkeys(COUNTS, raw["spec"].get("replicas", 1))
            return raw | {"status": counts}
        case "ConfigMap":
            document = yaml.safe_load(raw["data"]["config.yaml"])
            for each in features:
                document[each]["enabled"] = True
            document["anycastIP"]["clusterID"] = CLUSTER_ID
            return raw | {"data": {"config.yaml": yaml.safe_dump(document)}}
        case "Secret":
            data = {"tls.crt": pair().certificate, "tls.key": pair().key}
            return raw | {"data": {name: b64encode(part).decode() for name, part in data.items()}}
        case "ValidatingWebhookConfiguration":
            for each in raw["webhooks"]:
                each["clientConfig"]["caBundle"] = b64encode(authority().certificate).decode()
    return raw


@cache
def _manifest() -> list[dict[str, Any]]:
    return [raw for raw in yaml.safe_load_all(MANIFEST.read_text()) if raw]


@cache
def authority() -> Pair:
    return new_ca("drawbridge", NOW - timedelta(hours=1), NOW + timedelta(days=300))


@cache
def pair() -> Pair:
    return new_leaf(authority(), [HOST], [], NOW - timedelta(hours=1), NOW + timedelta(days=60))


def resource(kind: str) -> Resource:
    return next(each.resource for each in (*BUILT_IN, *CALICO_V3, *INGRESS_DAEMONSETS) if each.kind == kind)
