"""What of elasticity cannot be meant is refused, with the way out."""

from __future__ import annotations

import pytest

from settings import ElasticitySettings, SettingsError, parse

HEADER = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\n"


def elasticity(given: str) -> ElasticitySettings:
    return parse(f"{HEADER}elasticity: {given}\n").elasticity


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param("{localReplicas: -1}", "localReplicas: -1", id="fewer than none"),
        pytest.param("{localReplicas: two}", "localReplicas: 'two'", id="a word for a number"),
        pytest.param("{switch: {name: EKS Config}}", "switch.name: 'EKS Config'", id="no name of an object"),
        pytest.param("{placement: never}", "placement: 'never'", id="no such placement"),
        pytest.param("{region: Guangzhou}", "'Guangzhou' is not a region", id="a region by its title"),
        pytest.param("{schedulerName: ''}", "schedulerName: ''", id="no scheduler"),
        pytest.param("{excludedNamespaces: [Kube_System]}", "'Kube_System'", id="no namespace"),
        pytest.param("{maxSuperPods: {total: -1}}", "maxSuperPods.total: -1", id="a cap below none"),
        pytest.param("{homeFailover: {homeAfter: 0s}}", "homeAfter: '0s' is no time", id="home at once"),
        pytest.param(
            "{subnets: [{id: vpc-1, zone: ap-x-1}]}",
            r"subnets\[0\].id: 'vpc-1' is not the id of a subnet; write for example subnet-",
            id="another resource's id",
        ),
        pytest.param(
            "{subnets: [{id: subnet-1, zone: Guangzhou 3}]}",
            r"subnets\[0\].zone: 'Guangzhou 3' is not a zone; write .* ap-guangzhou-3",
            id="no zone",
        ),
        pytest.param("{subnets: [{id: subnet-1}]}", r"subnets\[0\].zone: is missing", id="nowhere"),
        pytest.param(
            "{subnets: [{id: subnet-1, zone: a-1}, {id: subnet-1, zone: a-2}]}",
            "subnets names subnet-1 more than once",
            id="a subnet twice",
        ),
        pytest.param(
            "{resolvConf: 'nameservers 10.0.0.2'}",
            "'nameservers 10.0.0.2' is no line of a resolv.conf.*for example nameserver 10.0.0.2",
            id="no resolv.conf",
        ),
        pytest.param("{localReplica: 1}", "did you mean localReplicas", id="almost a field"),
        pytest.param(
            "{subnets: [{id: subnet-1, zome: a}]}", "did you mean zone", id="almost a field of a part"
        ),
    ],
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
