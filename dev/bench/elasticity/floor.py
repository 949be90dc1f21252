"""A gate that decides nothing: a small Go program sets it and removes it, called about as many pods as ours is."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from api.elasticity import LOCAL_REPLICAS, PATH
from dev.bench.admission import of_path
from dev.bench.deployments import BENCH, PATIENCE, await_scaled, deploy_program, scale
from dev.bench.elasticity.crowd import LOCAL, Crowd, manifest
from dev.lab import binaries, processes
from dev.lab.admission import WEBHOOK_CONFIGURATION
from dev.lab.session import Lab
from kube.errors import ServerError
from kube.resources import MUTATING_WEBHOOKS, PODS

NAME = "noop-gate"
MARK = "bench.drawbridge.io/gate"
"""The program's gate, and the annotation of the pods that it is called about."""
MARKED = {MARK: str(LOCAL)}


@contextmanager
def in_force(lab: Lab) -> Iterator[None]:
    """It is called about pods with the mark, and has one server, as we have."""
    program = binaries.ensure(NAME)[NAME]
    place = (BENCH, NAME)
    authority = deploy_program(lab.client, NAME, program)
    scale(lab.client, place, 1)
    await_scaled(lab, place, 1)
    ours = lab.client.get(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)
    lab.client.create(MUTATING_WEBHOOKS, registration(of_path(ours, PATH), authority))
    lab.wait(lambda: _gates(lab), PATIENCE, f"{NAME} to be called")
    with _releasing(lab, str(program)):
        yield
    lab.client.delete(MUTATING_WEBHOOKS, NAME)
    scale(lab.client, place, 0)
    await_scaled(lab, place, 0)


def registration(ours: Mapping[str, Any], authority: bytes) -> dict[str, Any]:
    """*ours*, which has one webhook, for pods with the mark instead of our annotation."""
    [webhook] = msgspec.json.decode(msgspec.json.encode(ours["webhooks"]).replace(*_renaming()))
    service = {"name": NAME, "namespace": BENCH, "path": "/", "port": 443}
    called = {"caBundle": base64.b64encode(authority).decode(), "service": service}
    return {
        **{key: ours[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": NAME},
        "webhooks": [webhook | {"name": f"{NAME}.bench.drawbridge.io", "clientConfig": called}],
    }


def _renaming() -> tuple[bytes, bytes]:
    return LOCAL_REPLICAS.encode(), MARK.encode()


def _gates(lab: Lab) -> bool:
    """Whether a pod with the mark would be gated."""
    template = manifest(Crowd("try", 1, MARKED), 0)["spec"]["template"]
    template["metadata"]["generateName"] = "try-"
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    try:
        tried = lab.client.request("POST", PODS.path("default"), body=pod, query={"dryRun": "All"}, type=dict)
    except ServerError:
        return False
    return bool(tried["spec"].get("schedulingGates") == [{"name": MARK}])


@contextmanager
def _releasing(lab: Lab, program: str) -> Iterator[None]:
    with (lab.logs / f"{NAME}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(lab.kubeconfig)], stdout=log, stderr=log, preexec_fn=processes.die_with_parent
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()
