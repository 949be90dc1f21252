"""`python -m dev.lab.policy`: the policy, registered in a cluster, for as long as this program runs."""

from __future__ import annotations

import argparse
import base64
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.lab.kubeconfig import client_of
from dev.lab.policy.mutations import LABEL
from dev.lab.policy.server import HOST, serving
from dev.lab.waiting import until
from kube.client import Client
from kube.errors import ApiError
from kube.resources import MUTATING_WEBHOOKS, NODES

NAME = "lab-policy"
RULES = [
    {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "daemonsets"]},
    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "nodes"]},
]
SECONDS = 60


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    client = client_of(options.kubeconfig)
    with serving(options.directory, options.port) as authority:
        register(client, options.port, authority)
        print("ready", flush=True)
        signal.sigwait(signals)
    return 0


def register(client: Client, port: int, authority: bytes) -> None:
    """Back when the API server asks for every node that is written."""
    try:
        client.create(MUTATING_WEBHOOKS, configuration(port, authority))
    except ApiError:  # from an earlier life, with another authority
        client.patch(MUTATING_WEBHOOKS, NAME, {"webhooks": configuration(port, authority)["webhooks"]})
    until(lambda: _is_at_work(client), SECONDS, "the API server to call the policy")


def configuration(port: int, authority: bytes) -> dict[str, Any]:
    webhook = {
        "name": "policy.lab.invalid",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        # Other webhooks change what this one has seen, and it sees it again.
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": {
            "url": f"https://{HOST}:{port}/mutate",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [{**each, "operations": ["CREATE", "UPDATE"]} for each in RULES],
    }
    return {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def _is_at_work(client: Client) -> bool:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "policy-probe"}}
    try:
        made = client.request("POST", NODES.path(), body=node, query={"dryRun": "All"})
    except ApiError:
        return False
    return LABEL in made["metadata"].get("labels", {}).items()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.policy", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator")
    parser.add_argument("--directory", type=Path, required=True, help="for its key")
    parser.add_argument("--port", type=int, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
