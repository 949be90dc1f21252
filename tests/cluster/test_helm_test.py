"""The real Helm tests its release: a pod of our image calls the webhook servers through their Service."""

from __future__ import annotations

from lab.install import NAMESPACE, RELEASE
from lab.manifests import DEPLOY
from lab.session import Lab
from webhook import ip_reservation

WHERE = ("--namespace", NAMESPACE)


def test_a_release_that_answers_passes_and_leaves_no_pod(lab_v3: Lab) -> None:
    output = lab_v3.helm("test", RELEASE, *WHERE).stdout

    assert "Phase:          Succeeded" in output
    assert lab_v3.kubectl("get", f"pod/{RELEASE}-test", *WHERE, "--ignore-not-found").stdout == ""
    logs = lab_v3.directory.rglob(f"{NAMESPACE}_{RELEASE}-test_*/admission/*.log")
    assert {log.read_text() for log in logs} == {
        f"ok {RELEASE}-webhook.{NAMESPACE}.svc{ip_reservation.PATH}\n"
    }


def test_the_plain_manifests_are_valid_to_the_api_server(lab_v3: Lab) -> None:
    """Strictly: unknown fields are errors, too."""
    checked = lab_v3.kubectl("apply", "-k", str(DEPLOY), "--dry-run=server", "--validate=strict").stdout

    assert checked.count("(server dry run)") == len(checked.splitlines()) > 15
