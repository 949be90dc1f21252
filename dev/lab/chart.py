"""What Helm makes of the chart, as it stands in the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dev.lab import binaries
from dev.lab.errors import LabError
from dev.lab.repository import ROOT

CHART = ROOT / "charts" / "drawbridge"
EKLET = ROOT / "charts" / "eklet"
NAME = NAMESPACE = "drawbridge"
OF_HELM = ("app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ")
"""Labels that name the manager of an object, which has none here."""


def manifests(values: str, *options: str, of: Path = CHART) -> str:
    """For *values*, in YAML, and without what only Helm needs; raises LabError with Helm's words."""
    helm = str(binaries.ensure("helm")["helm"])
    command = [helm, "template", NAME, str(of), "--namespace", NAMESPACE, "--values", "-", *options]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise LabError(f"the chart cannot be rendered: {done.stderr}")
    return without_helm(done.stdout)


def without_helm(text: str) -> str:
    lines = (line.rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if not line.strip().startswith(OF_HELM))
