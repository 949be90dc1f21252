"""The real cert-manager beside a lab: its controller and its cainjector, as processes of the administrator."""

from __future__ import annotations

import os
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from certs.issue import Pair
from certs.rotation import pem_of
from dev.lab import binaries, install, processes
from dev.lab.session import Lab
from kube.client import Resource
from kube.errors import Conflict
from tests.cluster.certificates import NAMESPACE

GROUP = "cert-manager.io"
CERTIFICATES = Resource(GROUP, "v1", "certificates")
ISSUERS = Resource(GROUP, "v1", "issuers")
CONTROLLER, INJECTOR = "cert-manager-controller", "cert-manager-cainjector"
OPTIONS = {
    CONTROLLER: (
        "--metrics-listen-address=127.0.0.1:0",
        # What this version also serves in acme.cert-manager.io and for Ingresses is not what is tested.
        "--controllers=*,-ingress-shim,-orders,-challenges,-certificaterequests-issuer-acme",
    ),
    INJECTOR: (),
}


@contextmanager
def running(lab: Lab, directory: Path) -> Iterator[None]:
    """For the length of the block; what they say is in *directory*."""
    programs = binaries.ensure(*OPTIONS)
    _define(lab)
    with ExitStack() as closing:
        for name, options in OPTIONS.items():
            log = closing.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [programs[name], f"--kubeconfig={lab.kubeconfig}", "--leader-elect=false", *options],
                env=os.environ | processes.marked_environment(lab.directory),
                stdout=log,
                stderr=log,
                preexec_fn=processes.die_with_parent,
            )
            closing.callback(process.wait)
            closing.callback(process.kill)
        yield


def renew(lab: Lab, name: str) -> None:
    """Have a certificate issued again, as ``cmctl renew`` does."""
    lab.wait(partial(_renewing, lab, name), 30, f"{name} to be marked for its renewal")


def _renewing(lab: Lab, name: str) -> bool:
    found = lab.client.get(CERTIFICATES, name, NAMESPACE)
    issuing = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    others = [each for each in found["status"].get("conditions", []) if each["type"] != "Issuing"]
    change = {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "status": {"conditions": [*others, issuing]},
    }
    try:
        lab.client.patch(CERTIFICATES.sub("status"), name, change, NAMESPACE)
    except Conflict:
        return False  # cert-manager wrote meanwhile
    return True


def put_authority(lab: Lab, name: str, ca: Pair) -> None:
    """Let the Issuer *name*, made with the first, sign with this CA from now on."""
    data = {"tls.crt": ca.certificate, "tls.key": ca.key}
    _apply(lab, secret(name, data) | {"type": "kubernetes.io/tls"})
    issuer = {"apiVersion": ISSUERS.api_version, "kind": "Issuer", "metadata": {"name": name}}
    _apply(lab, issuer | {"spec": {"ca": {"secretName": name}}})


def put_trusted(lab: Lab, name: str, *authorities: x509.Certificate) -> None:
    """Into a Secret that the cainjector may read."""
    made = secret(name, {"ca.crt": pem_of(authorities)})
    _apply(
        lab, made | {"metadata": {"name": name, "annotations": {f"{GROUP}/allow-direct-injection": "true"}}}
    )


def secret(name: str, data: dict[str, bytes]) -> dict[str, Any]:
    encoded = {key: b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def _apply(lab: Lab, body: dict[str, Any]) -> None:
    lab.kubectl("apply", "--server-side", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(body))


def _define(lab: Lab) -> None:
    for file in sorted(binaries.cert_manager_crds().glob("*.yaml")):
        definition: dict[str, Any] = yaml.safe_load(file.read_text())
        del definition["metadata"]["labels"]  # placeholders of a template
        lab.client.create(install.DEFINITIONS, definition)
    for resource in (CERTIFICATES, ISSUERS):
        lab.wait(partial(lab.client.serves, resource), 30, f"the API server to serve {resource.plural}")
