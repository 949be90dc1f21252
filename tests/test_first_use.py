"""What threads decode for the first time at the same moment does not end the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
META = '{"name": "a", "resourceVersion": "1", "labels": {"a": "b"}}'
LIST = '{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": ' + META + ', "spec": {}}]}'
ROW = '{"AddressId": "eip-1", "AddressStatus": "BIND", "TagSet": [{"Key": "a", "Value": "b"}]}'
CLAIM = """{"uid": "u", "node": "a", "instance": "i", "token": "t", "name": "n", "asked": "2026-01-01T00:00:00Z",
    "tags": [["a", "b"]]}"""
WORKLOAD = '{"metadata": ' + META + ', "spec": {}, "status": {"conditions": [{"type": "Progressing"}]}}'
GRANT = '{"metadata": ' + META + ', "rules": [{}], "subjects": [{}]}'
MARK = '{"key": "a", "at": "2026-01-01T00:00:00Z"}'
TEMPLATE = """{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "ports": [{"hostPort": 1}]}],
    "tolerations": [{"key": "a"}], "affinity": {"nodeAffinity": {}}}}"""
INGRESS_DAEMONSET = (
    '{"metadata": ' + META + ', "spec": {"updateStrategy": {"rollingUpdate": {}}, "template": {}}}'
)
CONFIGURATIONS = (
    '{"items": [{"metadata": ' + META + ', "webhooks": [{"clientConfig": {"service": {"name": "a"}}}],'
    ' "spec": {"template": {"spec": {}}}}]}'
)
RACE = f"""
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from kube.client import Page
from kube.informer import Event, Identified
from kube.errors import Status
from kube.transport import decoded as decoded_answer
from kube.types import ConfigMap, Node, Pod
from cli.installation import WebhookConfiguration, Lease
from cli.installation import Deployment as Installed
from cloud.responses import Addresses, decoded
from calico.segment import METADATA, IPReservation, revealed
from controllers.anycast_ip.claim import Claim
from webhook.admission import _Eviction
from webhook.elasticity.webhook import NewPod
from controllers.elasticity.nodes import WatchedNode
from controllers.elasticity.pods import PodSpec
from controllers.ingress_daemonset.detachment import Mark
from controllers.ingress_daemonset.children import Grant, Workload
from healthchecker.checker import Deployment
from api.ingress_daemonset.types import IngressDaemonSet
from api.ingress_daemonset.template import FollowedNode, Template
from kube.types import ObjectMeta

def of_client(kind):
    return lambda: decoded_answer(b'''{CONFIGURATIONS}''', Page[kind], "a list")

def answer(kind, body):
    return lambda: decoded(body.encode(), 200, kind, "A")

def object(kind, body):
    return lambda: msgspec.json.decode(body, type=kind)

def together(*uses):
    start = threading.Barrier(len(uses))
    def run(use):
        start.wait()
        use()
    threads = [threading.Thread(target=run, args=(use,)) for use in uses]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

for kind in (WebhookConfiguration, Installed, Lease):
    together(*[of_client(kind)] * 4)
together(*(object(Page[kind], '''{LIST}''') for kind in (Node, Pod, ConfigMap)))
together(*[object(IPReservation, '{{"metadata": {META}, "spec": {{"reservedCIDRs": []}}}}')] * 3)
together(*[lambda: revealed(ObjectMeta(annotations={{METADATA: '{{"labels": {{"a": "b"}}}}'}}))] * 3)
together(*[object(Claim, '''{CLAIM}''')] * 3)
together(*[object(NewPod, '{{"metadata": {META}, "spec": {{"tolerations": [{{"key": "a"}}]}}}}')] * 3)
together(*[object(WatchedNode, '{{"metadata": {META}, "status": {{"conditions": []}}}}')] * 3)
together(*[object(PodSpec, '{{"containers": [{{"name": "a", "ports": []}}]}}')] * 3)
together(*[object(IngressDaemonSet, '''{INGRESS_DAEMONSET}''')] * 3)
together(*[object(Template, '''{TEMPLATE}''')] * 3)
together(*[object(FollowedNode, '{{"metadata": {META}, "status": {{"conditions": [{{}}]}}}}')] * 3)
together(*[object(Workload, '''{WORKLOAD}''')] * 3)
together(*[object(Deployment, '''{WORKLOAD}''')] * 3)
together(*[object(Grant, '''{GRANT}''')] * 3)
together(*[object(dict[str, Mark], '{{"uid": {MARK}}}')] * 3)
together(*[object(_Eviction, '{{"deleteOptions": {{"dryRun": ["All"]}}}}')] * 3)
together(*[object(Event, '{{"type": "ADDED", "object": {{}}}}')] * 3)
together(*[object(Identified, '{{"metadata": {META}}}')] * 3)
together(*[object(Status, '{{"code": 404, "reason": "a", "message": "b", "details": {{"name": "a"}}}}')] * 3)
together(*[answer(Addresses, '{{"Response": {{"RequestId": "r", "TotalCount": 1, "AddressSet": [{ROW}]}}}}')] * 3)
"""


def test_threads_may_decode_a_type_for_the_first_time_together() -> None:
    """msgspec completes a type when it is first used; two threads that are at it together crash the interpreter."""
    runs = [
        subprocess.run([sys.executable, "-c", RACE], cwd=ROOT, check=False, capture_output=True, text=True)
        for _ in range(4)
    ]

    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 4
