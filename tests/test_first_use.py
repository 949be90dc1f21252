"""What threads decode for the first time at the same moment does not end the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
META = '{"name": "a", "resourceVersion": "1", "labels": {"a": "b"}}'
LIST = (
    '{"items": [{"metadata": ' + META + ', "webhooks": [{"clientConfig": {"service": {"name": "a"}}}],'
    ' "spec": {"template": {"spec": {}}}}]}'
)
KEYS = '{"TmpSecretId": "a", "TmpSecretKey": "b", "Token": "c", "ExpiredTime": 1}'
ROW = '{"AddressId": "eip-1", "AddressStatus": "BIND", "TagSet": [{"Key": "a", "Value": "b"}]}'
INGRESS_DAEMONSET = (
    '{"metadata": ' + META + ', "spec": {"updateStrategy": {"rollingUpdate": {}}, "template": {}}}'
)
VECTOR = '{"data": {"resultType": "vector", "result": [{"value": [1, "2"]}]}}'
RACE = f"""
import inspect, sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from api.ingress_daemonset.types import IngressDaemonSet
from cli.installation import Deployment, Lease, WebhookConfiguration
from cloud.credentials import _Assumed, _RoleKeys
from cloud.responses import Addresses, decoded
from controllers.elasticity.pods import PodSpec
from controllers.ingress_daemonset.readers import Answer, Scalar, Series, Vector
from kube.client import Page
from kube.transport import decoded as decoded_answer
from webhook.admission import _outline_of, decoded as decoded_object

def of_client(kind):
    return lambda: decoded_answer(b'''{LIST}''', Page[kind], "a list")

def of_cloud():
    decoded(b'{{"Response": {{"RequestId": "r", "TotalCount": 1, "AddressSet": [{ROW}]}}}}', 200, Addresses, "A")

def object(kind, body):
    return lambda: msgspec.json.decode(body, type=kind)

def of_review():
    large = b'{{"metadata": {{}}, "spec": {{}}, "rest": "%s"}}' % (b"x" * 300_000)
    decoded_object(msgspec.Raw(large), IngressDaemonSet, "object")

def made_again(*kinds):
    names = dict(vars(sys.modules[kinds[-1].__module__]))
    exec("".join(map(inspect.getsource, kinds)), names)
    return names[kinds[-1].__name__]

def together(*uses):
    start = threading.Barrier(len(uses))
    def run(use):
        start.wait()
        use()
    threads = [threading.Thread(target=run, args=(use,)) for use in uses]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

for kind in (WebhookConfiguration, Deployment, Lease):
    together(*[of_client(kind)] * 4)
together(*[object(PodSpec, '{{"containers": [{{"name": "a", "ports": []}}]}}')] * 3)
together(*[object(IngressDaemonSet, '''{INGRESS_DAEMONSET}''')] * 3)
together(*[of_cloud] * 3)
together(*[object(_RoleKeys, '{KEYS}')] * 3)
together(*[object(_Assumed, '{{"Credentials": {KEYS}, "ExpiredTime": 1}}')] * 3)
for _ in range(20):
    _outline_of.cache_clear()
    together(*[of_review] * 4)
    together(*[object(made_again(Scalar, Series, Vector, Answer), '{VECTOR}')] * 3)
"""


def test_threads_may_decode_a_type_for_the_first_time_together() -> None:
    """msgspec completes a type when it is first used; two threads that are at it together crash the interpreter."""
    runs = [
        subprocess.run([sys.executable, "-c", RACE], cwd=ROOT, check=False, capture_output=True, text=True)
        for _ in range(4)
    ]

    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 4
