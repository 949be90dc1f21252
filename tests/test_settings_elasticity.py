"""What of elasticity cannot be meant is refused, with the way out."""

from __future__ import annotations

import pytest

from settings import ElasticitySettings, SettingsError, parse
from tests.tables import table

HEADER = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\n"


def elasticity(given: str) -> ElasticitySettings:
    return parse(f"{HEADER}elasticity: {given}\n").elasticity


@table(
    "given, said",
    {
        "fewer than none": ("{localReplicas: -1}", "localReplicas: -1"),
        "a word for a number": ("{localReplicas: two}", "localReplicas: 'two'"),
        "no name of an object": ("{switch: {name: EKS Config}}", "switch.name: 'EKS Config'"),
        "no such placement": ("{placement: never}", "placement: 'never'"),
        "a region by its title": ("{region: Guangzhou}", "'Guangzhou' is not a region"),
        "no scheduler": ("{schedulerName: ''}", "schedulerName: ''"),
        "no namespace": ("{excludedNamespaces: [Kube_System]}", "'Kube_System'"),
        "a cap below none": ("{maxSuperPods: {total: -1}}", "maxSuperPods.total: -1"),
        "home at once": ("{homeFailover: {homeAfter: 0s}}", "homeAfter: '0s' is no time"),
        "another resource's id": (
            "{subnets: [{id: vpc-1, zone: ap-x-1}]}",
            r"subnets\[0\].id: 'vpc-1' is not the id of a subnet; write for example subnet-",
        ),
        "no zone": (
            "{subnets: [{id: subnet-1, zone: Guangzhou 3}]}",
            r"subnets\[0\].zone: 'Guangzhou 3' is not a zone; write .* ap-guangzhou-3",
        ),
        "nowhere": ("{subnets: [{id: subnet-1}]}", r"subnets\[0\].zone: is missing"),
        "a subnet twice": (
            "{subnets: [{id: subnet-1, zone: a-1}, {id: subnet-1, zone: a-2}]}",
            "subnets names subnet-1 more than once",
        ),
        "no resolv.conf": (
            "{resolvConf: 'nameservers 10.0.0.2'}",
            "'nameservers 10.0.0.2' is no line of a resolv.conf.*for example nameserver 10.0.0.2",
        ),
        "almost a field": ("{localReplica: 1}", "did you mean localReplicas"),
        "almost a field of a part": ("{subnets: [{id: subnet-1, zome: a}]}", "did you mean zone"),
    },
)
def test_what_cannot_be_meant_is_refused(given: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        elasticity(given)


def test_without_a_word_it_is_off_and_as_the_original_has_it() -> None:
    settings = elasticity("{}")

    assert not settings.enabled
    assert (settings.switch.namespace, settings.switch.name) == ("kube-system", "eks-config")
    assert settings.excluded_namespaces == ("kube-system", "tke-eni-ip-webhook")
    assert settings.local_replicas is None
    assert not settings.home_failover.enabled


def test_all_of_it_may_be_given() -> None:
    settings = elasticity(
        "{enabled: true, localReplicas: 0, subnets: [{id: subnet-ab12cd34, zone: ap-guangzhou-3}],"
        ' resolvConf: "# ours\\nnameserver 4.4.4.4\\n\\n  nameserver 8.8.8.8\\n",'
        " homeFailover: {enabled: true, homeAfter: 1m30s}, maxSuperPods: {total: 100, perNamespace: 10}}"
    )

    assert settings.local_replicas == 0
    assert [(subnet.id, subnet.zone) for subnet in settings.subnets] == [
        ("subnet-ab12cd34", "ap-guangzhou-3")
    ]
    assert settings.resolv_conf.splitlines()[1] == "nameserver 4.4.4.4"
    assert settings.home_failover.home_after == 90
    assert (settings.max_super_pods.total, settings.max_super_pods.per_namespace) == (100, 10)
