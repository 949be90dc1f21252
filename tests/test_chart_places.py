"""Where the chart puts the programs, and what it does for clusters with rules of their own."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from lab import chart, manifests
from lab.errors import LabError
from tests.charts import NAMESPACE, Objects, helm_needed, notes, pod_spec, refusal, render

pytestmark = helm_needed

WEBHOOK, CONTROLLERS = "drawbridge-webhook", "drawbridge-controllers"
INGRESS = {"ingressDaemonSet": {"enabled": True}}
CRD = ("CustomResourceDefinition", "ingressdaemonsets.ingressdaemonsets.mumoshu.github.io")


def strategy(objects: Objects, name: str) -> dict[str, Any]:
    return objects["Deployment", name]["spec"]["strategy"]["rollingUpdate"]


# The network of the nodes


@pytest.mark.parametrize(("program", "other"), [(WEBHOOK, CONTROLLERS), (CONTROLLERS, WEBHOOK)])
def test_one_program_may_be_on_the_network_of_its_nodes_alone(program: str, other: str) -> None:
    objects = render({program.removeprefix("drawbridge-"): {"hostNetwork": True}})

    spec = pod_spec(objects, program)
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert {"hostNetwork", "dnsPolicy"}.isdisjoint(pod_spec(objects, other))


def test_there_the_next_pod_waits_until_the_last_one_has_left_its_ports() -> None:
    objects = render({"webhook": {"hostNetwork": True}})

    assert strategy(objects, WEBHOOK) == {"maxUnavailable": 1, "maxSurge": 0}
    assert strategy(objects, CONTROLLERS) == {"maxUnavailable": 0, "maxSurge": 1}


def test_a_network_policy_is_not_pretended_where_it_has_no_effect() -> None:
    values = {"networkPolicy": {"enabled": True}, "webhook": {"hostNetwork": True}}

    assert [name for kind, name in render(values) if kind == "NetworkPolicy"] == [CONTROLLERS]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        pytest.param(
            {"webhook": {"hostNetwork": True}, "config": {"webhookPort": 10250}},
            "config.webhookPort is port 10250",
            id="the kubelet's",
        ),
        pytest.param(
            {"controllers": {"hostNetwork": True}, "config": {"metricsBindAddress": ":10256"}},
            "config.metricsBindAddress is port 10256",
            id="kube-proxy's",
        ),
        pytest.param(
            {"webhook": {"hostNetwork": True}, "config": {"webhookPort": 443}},
            "config.webhookPort is port 443",
            id="root's",
        ),
    ],
)
def test_ports_that_every_node_has_taken_are_refused_there(values: dict[str, Any], field: str) -> None:
    said = refusal(values)

    assert field in said
    assert re.search("give it (another one|one from 1024 on), or leave hostNetwork off", said)


def test_elsewhere_they_are_taken() -> None:
    objects = render({"config": {"webhookPort": 10250}, "controllers": {"hostNetwork": True}})

    assert pod_spec(objects, WEBHOOK)["containers"][0]["ports"][0]["containerPort"] == 10250


# Nodes


def test_what_is_said_for_one_program_goes_before_what_is_said_for_all() -> None:
    objects = render(
        {
            "nodeSelector": {"pool": "all"},
            "tolerations": [{"key": "all", "operator": "Exists"}],
            "affinity": {"podAffinity": {}},
            "controllers": {
                "nodeSelector": {"pool": "own"},
                "tolerations": [{"key": "own", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
            },
        }
    )

    own, common = pod_spec(objects, CONTROLLERS), pod_spec(objects, WEBHOOK)
    assert (own["nodeSelector"], common["nodeSelector"]) == ({"pool": "own"}, {"pool": "all"})
    assert [each["tolerations"][0]["key"] for each in (own, common)] == ["own", "all"]
    assert (own["affinity"], common["affinity"]) == ({"nodeAffinity": {}}, {"podAffinity": {}})


# Labels, annotations, quotas


def test_common_labels_are_on_everything_but_the_definition_and_select_nothing() -> None:
    label = {"example.com/owner": "platform"}
    objects = render({**INGRESS, "commonLabels": label})

    for key, document in objects.items():
        assert key == CRD or label.items() <= document["metadata"]["labels"].items(), key
        assert label["example.com/owner"] not in str(document.get("spec", {}).get("selector")), key
    for name in (WEBHOOK, CONTROLLERS):
        template = objects["Deployment", name]["spec"]["template"]
        assert label.items() <= template["metadata"]["labels"].items()


def test_the_label_that_is_said_for_fewer_goes_before_a_common_one() -> None:
    values = {
        "commonLabels": {"team": "platform"},
        "podLabels": {"team": "gate"},
        "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"team": "sre"}}},
    }
    objects = render(values)

    template = objects["Deployment", WEBHOOK]["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "gate"
    assert objects["ServiceMonitor", "drawbridge"]["metadata"]["labels"]["team"] == "sre"
    assert objects["Deployment", WEBHOOK]["metadata"]["labels"]["team"] == "platform"


@pytest.mark.parametrize("mode", ["self-managed", "cert-manager"])
def test_annotations_are_on_both_registrations_beside_our_own(mode: str) -> None:
    values = {"webhook": {"configurationAnnotations": {"admissions.enforcer/disabled": "true"}}}
    certs = {"certs": {"mode": mode, "existingSecret": "", "caBundle": ""}}
    objects = render({**INGRESS, **values, **certs})

    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        found = objects[kind, "drawbridge"]["metadata"]["annotations"]
        assert found["admissions.enforcer/disabled"] == "true"
        assert ("cert-manager.io/inject-ca-from" in found) == (mode == "cert-manager")


def test_a_quota_lets_every_pod_be_there_twice_and_one_for_the_test() -> None:
    values = {"resourceQuota": {"enabled": True}, "replicaCount": 3, "controllers": {"replicaCount": 2}}

    spec = render(values)["ResourceQuota", "drawbridge-critical-pods"]["spec"]
    assert spec["hard"] == {"pods": "11"}
    [scope] = spec["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["values"]) == ("PriorityClass", ["system-cluster-critical"])


def test_there_is_no_quota_unless_it_is_asked_for() -> None:
    assert "ResourceQuota" not in {kind for kind, _ in render()}


def test_a_quota_is_refused_in_a_namespace_whose_other_pods_it_would_count() -> None:
    with pytest.raises(LabError, match="its quota would count pods of others there: leave it off"):
        chart.manifests("resourceQuota: {enabled: true}", "--namespace=kube-system")


# The definition


def test_the_definition_stays_unless_it_is_told_to_go() -> None:
    kept, going = render(INGRESS)[CRD], render({**INGRESS, "crds": {"keep": False}})[CRD]

    assert kept["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert going == kept


def test_the_definition_may_be_installed_by_somebody_else() -> None:
    objects = render({**INGRESS, "crds": {"install": False}})

    assert CRD not in objects
    assert ("MutatingWebhookConfiguration", "drawbridge") in objects


# What is said


ANYCAST = {"anycastIP": {"enabled": True, "clusterID": "cls-1"}, "cloud": {"region": "ap-singapore"}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({}, "kubectl delete validatingwebhookconfiguration drawbridge\n", id="ip reservation"),
        pytest.param(
            ANYCAST,
            "kubectl taint nodes -l 'tke.cloud.tencent.com/need-aia-ip=true' tke.cloud.tencent.com/no-aia-ip-",
            id="anycast ip",
        ),
        pytest.param(
            {"elasticity": {"enabled": True}}, '{"op": "remove", "path": "/spec/schedulingGates"}', id="pods"
        ),
        pytest.param(
            INGRESS,
            "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration drawbridge",
            id="ingress",
        ),
        pytest.param(
            {"networkPolicy": {"enabled": True, "apiServers": ["10.0.0.0/28"]}},
            f"kubectl -n {NAMESPACE} delete networkpolicy drawbridge-webhook",
            id="network policy",
        ),
    ],
)
def test_the_notes_say_how_to_break_the_glass_of_what_is_enabled(values: dict[str, Any], said: str) -> None:
    nothing = {"ipReservation": {"enabled": False}}

    assert said in notes(nothing | values if values else {})
    assert said not in notes(nothing)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"replicaCount": 1}, "replicaCount is 1: no server answers", id="one server"),
        pytest.param(
            {"webhook": {"hostNetwork": True}},
            "The pods of drawbridge-webhook use the network of their nodes",
            id="the network of the nodes",
        ),
        pytest.param(
            {"monitoring": {"prometheusRule": {"enabled": True}}},
            "get servicemonitors,podmonitors,prometheusrules --show-labels",
            id="Prometheus",
        ),
        pytest.param(
            {**INGRESS, "crds": {"keep": False}},
            "Uninstalling this release deletes their CRD, and with it all of them and their pods.",
            id="a definition that goes",
        ),
    ],
)
def test_the_notes_say_what_to_mind(values: dict[str, Any], said: str) -> None:
    assert said in notes(values)
    assert said not in notes({})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            {"commonLabels": {"app.kubernetes.io/name": "x"}},
            "commonLabels has app.kubernetes.io/name, which is the chart's own, to find its objects by: leave it",
            id="a common label of ours",
        ),
        pytest.param(
            {"podLabels": {"app.kubernetes.io/component": "x"}},
            "podLabels has app.kubernetes.io/component, which is the chart's own",
            id="a label of ours",
        ),
        pytest.param(
            {"resourceQuota": {"enabled": True}, "priorityClassName": ""},
            "resourceQuota.enabled is true, but priorityClassName is empty: name the priority",
            id="a quota of nothing",
        ),
        pytest.param({"webhook": {"resources": {"limit": {}}}}, "/webhook/resources", id="no limit"),
        pytest.param({"tolerations": [{"taint": "x"}]}, "/tolerations/0", id="no toleration"),
        pytest.param({"imagePullSecrets": ["pull"]}, "/imagePullSecrets/0", id="a name without its field"),
        pytest.param({"commonLabels": {"a b": "c"}}, "/commonLabels", id="no label"),
        pytest.param({"webhook": {"hostNetwork": "yes"}}, "/webhook/hostNetwork", id="no flag"),
        pytest.param({"crds": {"kep": False}}, "kep", id="a slip of the pen"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)


def test_a_label_of_the_recommended_ones_that_is_not_ours_is_taken() -> None:
    objects = render({"commonLabels": {"app.kubernetes.io/part-of": "platform"}})

    assert objects["Service", WEBHOOK]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "platform"


def test_the_manifests_without_helm_have_none_of_it() -> None:
    kinds = {each["kind"] for each in yaml.safe_load_all((manifests.DEPLOY / "install.yaml").read_text())}

    assert {"CustomResourceDefinition", "ResourceQuota", "NetworkPolicy", "ServiceMonitor"}.isdisjoint(kinds)
