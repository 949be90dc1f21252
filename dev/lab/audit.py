"""Write an audit log in each lab: who requested what of its API server, and what had been granted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "DRAWBRIDGE_LAB_AUDIT"
"""Names a directory in which the log of each lab, by its name, outlives it."""
GRANTS = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"]
POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A watch that goes on has been answered, too.
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        # Those that every cluster has from its creation, and its built-in controllers.
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch"],
            "resources": [{"group": "rbac.authorization.k8s.io", "resources": GRANTS}],
        },
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}


def prepare(directory: Path) -> dict[str, str]:
    """The API server's arguments for the lab in *directory*: the policy there, the log there or in $VARIABLE."""
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(POLICY, indent=1))
    kept = os.environ.get(VARIABLE)
    log = Path(kept) / f"{directory.name}.log" if kept else directory / "logs" / "audit.log"
    return {"audit-policy-file": str(policy), "audit-log-path": str(log)}
