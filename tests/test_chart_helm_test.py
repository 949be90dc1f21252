"""`helm test` asks for every path that is registered, and trusts whom the API server trusts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.charts import ANYCAST_IP, CERTS, Objects, helm_needed, notes, render

ALL: dict[str, Any] = {**ANYCAST_IP, "elasticity": {"enabled": True}, "ingressDaemonSet": {"enabled": True}}
ADDED = [pytest.param({}, id="the default features"), pytest.param(ALL, id="all features")]


def pod(objects: Objects) -> dict[str, Any]:
    return objects["Pod", "drawbridge-test"]


def arguments(objects: Objects) -> list[str]:
    return pod(objects)["spec"]["containers"][0]["args"]


def registered(objects: Objects) -> Iterator[dict[str, Any]]:
    for (kind, _), document in objects.items():
        if kind.endswith("WebhookConfiguration"):
            yield from (webhook["clientConfig"] for webhook in document["webhooks"])


@helm_needed
@pytest.mark.parametrize("values", ADDED)
def test_every_path_that_is_registered_is_asked_for(values: dict[str, Any]) -> None:
    objects = render(values)

    asked = [each for each in arguments(objects) if not each.startswith("--")]
    assert sorted(asked) == sorted(client["service"]["path"] for client in registered(objects))


@helm_needed
def test_it_is_sent_to_the_service_that_is_registered() -> None:
    objects = render()
    [client] = registered(objects)

    service = client["service"]
    assert f"--server={service['name']}.{service['namespace']}.svc" in arguments(objects)
    assert f"--ca-base64={client['caBundle']}" in arguments(objects)


@helm_needed
@pytest.mark.parametrize("mode", ["self-managed", "cert-manager"])
def test_a_ca_that_the_chart_does_not_know_is_read_from_the_secret_of_the_server(mode: str) -> None:
    objects = render({"certs": {**dict.fromkeys(CERTS["certs"], ""), "mode": mode}})

    [volume] = pod(objects)["spec"]["volumes"]
    [served] = [
        each["secret"]["secretName"]
        for each in objects["Deployment", "drawbridge-webhook"]["spec"]["template"]["spec"]["volumes"]
        if each["name"] == "tls"
    ]
    assert volume["secret"] == {"secretName": served, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    [mount] = pod(objects)["spec"]["containers"][0]["volumeMounts"]
    assert f"--ca-file={mount['mountPath']}/ca.crt" in arguments(objects)


@helm_needed
def test_there_is_no_test_where_nothing_is_registered() -> None:
    assert ("Pod", "drawbridge-test") not in render({"ipReservation": {"enabled": False}})


@helm_needed
def test_the_notes_tell_of_it_where_there_is_one() -> None:
    command = "helm test drawbridge -n gate-system"

    assert command in notes({})
    assert command not in notes({"ipReservation": {"enabled": False}})


@helm_needed
def test_it_is_run_by_helm_test_alone_and_cleaned_up_when_all_is_well() -> None:
    assert pod(render())["metadata"]["annotations"] == {
        "helm.sh/hook": "test",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }


@helm_needed
def test_it_is_as_restricted_as_the_programs_and_has_no_token() -> None:
    objects = render()
    spec, program = (
        pod(objects)["spec"],
        objects["Deployment", "drawbridge-webhook"]["spec"]["template"]["spec"],
    )

    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == program["securityContext"]
    [container], [other] = spec["containers"], program["containers"]
    assert container["securityContext"] == other["securityContext"]
    assert container["image"] == other["image"]


@helm_needed
def test_nobody_takes_it_for_one_of_the_programs() -> None:
    objects = render()
    labels = pod(objects)["metadata"]["labels"]

    for (kind, name), document in objects.items():
        if kind in ("Service", "PodDisruptionBudget", "Deployment"):
            selector = document["spec"]["selector"]
            assert not selector.get("matchLabels", selector).items() <= labels.items(), name


@helm_needed
def test_its_program_is_there() -> None:
    from webhook import probe

    [container] = pod(render())["spec"]["containers"]
    assert container["command"] == ["python", "-m", probe.__name__]
    assert all(re.match("--(server|ca-base64)=|/", each) for each in container["args"])
