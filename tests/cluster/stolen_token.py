"""What a stolen token of a ServiceAccount is refused, and what the API server finds wrong in the policies for that."""

from __future__ import annotations

import json

from dev.lab.install import NAMESPACE
from dev.lab.session import Lab


def refusal(lab: Lab, account: str, *arguments: str, manifest: object = None) -> str:
    """Of a kubectl that writes nothing; empty when it is not refused."""
    user = f"--as=system:serviceaccount:{NAMESPACE}:drawbridge-{account}"
    dry = () if arguments[0] == "get" else ("--dry-run=server",)
    stdin = json.dumps(manifest) if manifest is not None else None
    done = lab.kubectl(*arguments, user, *dry, stdin=stdin, check=False)
    return done.stderr if done.returncode else ""


def faults_in_policies(lab: Lab) -> dict[str, object]:
    """By policy, what a controller of Kubernetes finds wrong with its types, once it has looked at all of them."""

    def checked() -> dict[str, object] | None:
        answer = lab.kubectl("get", "validatingadmissionpolicies", "--output=json").stdout
        policies = {each["metadata"]["name"]: each.get("status", {}) for each in json.loads(answer)["items"]}
        found = {name: status.get("typeChecking") for name, status in policies.items()}
        return None if None in found.values() else found

    return lab.wait(checked, 60, "the types of all policies to be checked")
