"""The commands of the documents work as they stand, on a real control plane."""

import secrets
from collections.abc import Callable, Iterator, Mapping

import pytest

from api.elasticity import GATE
from api.ingress_daemonset import (
    API_VERSION,
    DETACHED_BY,
    FINALIZER,
    INGRESS_DAEMONSETS,
    KIND,
)
from api.ingress_daemonset.template import EXCLUDED
from controllers.anycast_ip.claim import SELECTED
from dev.lab import install
from dev.lab.nodes import NODES, cloud_node, join
from dev.lab.session import Lab
from kube.errors import NotFound
from kube.resources import CONFIG_MAPS, NAMESPACES, PODS
from settings.anycast_ip import NEED_LABEL
from tests.cluster import workloads
from tests.cluster.anycast import DRAWBRIDGE, FLEET, Fleet, joined
from tests.cluster.shell import shell
from tests.pages import PAGES, ROOT, Block, blocks, run

pytestmark = pytest.mark.nightly

DETACHED = "node-detacher.variant.run/detached"
BLOCKS = [block for page in PAGES for block in blocks(page)]
STUCK = "my-node"
"""The name that the documents use for a node that is in trouble."""


@pytest.fixture(scope="module")
def environment(lab_v3: Lab) -> Iterator[Mapping[str, str]]:
    """Some commands delete the webhook configuration: it is restored afterwards."""
    yield shell(lab_v3)
    install.upgrade(lab_v3, {})


def of(where: str) -> list[Block]:
    return [block for block in BLOCKS if block.where == where]


def test_the_commands_of_the_documents_work_in_their_order(
    environment: Mapping[str, str], subtests: pytest.Subtests
) -> None:
    for block in of("lab"):
        with subtests.test(str(block)):
            assert block.prints in run(block, ROOT, environment)


def test_the_commands_for_pods_that_stay_gated_open_our_gate_alone(
    lab_v3: Lab, environment: Mapping[str, str]
) -> None:
    """Elasticity is off in this lab: no controller opens a gate."""
    (block,) = of("gated")
    others = "others.example/gate"
    gated = {"waits": [GATE], "waits-for-both": [GATE, others], "waits-for-others": [others]}
    namespace = workloads.namespace(lab_v3.client, f"gated-{secrets.token_hex(4)}")
    for name, gates in gated.items():
        spec = {"schedulingGates": [{"name": gate} for gate in gates]}
        workloads.create_pod(lab_v3, namespace, name, **spec)

    assert block.prints in run(block, ROOT, environment)

    lab_v3.wait(lambda: workloads.get_pod(lab_v3, namespace, "waits").spec.node_name, 60, "the pod to start")
    for name in ("waits-for-both", "waits-for-others"):
        left = lab_v3.client.get(PODS, name, namespace)["spec"]["schedulingGates"]
        assert [gate["name"] for gate in left] == [others]
    lab_v3.client.delete(NAMESPACES, namespace)


def a_node_stays_tainted(fleet: Fleet) -> None:
    join(fleet.client, STUCK, instance="", labels={NEED_LABEL: "true", FLEET: fleet.token})


def a_node_is_open(fleet: Fleet) -> None:
    fleet.join("opened")
    fleet.await_open("opened")


def the_last_node_has_just_left(fleet: Fleet) -> None:
    fleet.lab.wait(lambda: not claims(fleet), 300, "the claims of earlier nodes to go")
    a_node_is_open(fleet)
    fleet.leave_all()


def claims(fleet: Fleet) -> list[str]:
    found = fleet.client.list(CONFIG_MAPS, DRAWBRIDGE, label_selector=SELECTED).items
    return [each["metadata"]["name"] for each in found]


BEFORE: Mapping[str, Callable[[Fleet], None]] = {
    "break-glass.md": a_node_stays_tainted,
    "uninstall.md": the_last_node_has_just_left,
}


def test_the_commands_about_anycast_ips_work(cloud_lab: Lab, subtests: pytest.Subtests) -> None:
    for block in of("cloud"):
        with subtests.test(str(block)), joined(cloud_lab) as fleet:
            BEFORE.get(block.page.name, a_node_is_open)(fleet)

            assert block.prints in run(block, ROOT, shell(cloud_lab))


@pytest.fixture(scope="module")
def opened(edge_lab: Lab) -> Iterator[Lab]:
    """Its webhook configurations are changed; they are as installed afterwards."""
    yield edge_lab
    # Helm would not overwrite what kubectl has changed.
    kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    edge_lab.kubectl("delete", kinds, "--selector=app.kubernetes.io/instance=drawbridge")
    install.upgrade(edge_lab, {})


def test_the_commands_about_ingress_daemonsets_work(opened: Lab, subtests: pytest.Subtests) -> None:
    for block in of("edge"):
        with subtests.test(str(block)):
            assert block.prints in run(block, ROOT, shell(opened))


EDGE, INGRESS = "edge-1", "nginx"
"""The names that the documents use."""


@pytest.fixture
def abandoned(bare_lab: Lab) -> Iterator[Lab]:
    """Drawbridge is gone for good, and an IngressDaemonSet that had detached a node is to go, too."""
    crd = ROOT / "charts" / "drawbridge" / "files" / "ingressdaemonsets.yaml"
    bare_lab.kubectl("apply", "--server-side", "-f", str(crd))
    client = bare_lab.client
    bare_lab.wait(lambda: client.serves(INGRESS_DAEMONSETS), 60, "IngressDaemonSets to be served")
    node = cloud_node(EDGE, "", {})
    node["metadata"]["annotations"] |= {DETACHED: "true", DETACHED_BY: "{}"}
    node["metadata"]["labels"] |= {EXCLUDED: ""}
    client.create(NODES, node)
    template = {
        "metadata": {"labels": {"app": INGRESS}},
        "spec": {"containers": [{"name": INGRESS, "image": INGRESS}]},
    }
    metadata = {"name": INGRESS, "finalizers": [FINALIZER]}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {"template": template}}
    client.create(INGRESS_DAEMONSETS, body, "default")
    client.delete(INGRESS_DAEMONSETS, INGRESS, "default")
    yield bare_lab
    client.delete(NODES, EDGE)


def test_the_commands_for_when_drawbridge_is_gone_work(abandoned: Lab) -> None:
    (block,) = of("gone")
    client = abandoned.client
    assert client.get(INGRESS_DAEMONSETS, INGRESS, "default")["metadata"]["finalizers"] == [FINALIZER]

    assert block.prints in run(block, ROOT, shell(abandoned))

    with pytest.raises(NotFound):
        client.get(INGRESS_DAEMONSETS, INGRESS, "default")
    metadata = client.get(NODES, EDGE)["metadata"]
    assert not {DETACHED, DETACHED_BY, EXCLUDED} & {*metadata["annotations"], *metadata["labels"]}
