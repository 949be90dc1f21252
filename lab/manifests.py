"""Write deploy/install.yaml: what the chart renders, for those who install without Helm."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import binaries
from lab.errors import LabError

ROOT = Path(__file__).parent.parent
CHART, DEPLOY = ROOT / "charts" / "drawbridge", ROOT / "deploy"
NAME = NAMESPACE = "drawbridge"
HEAD = "# Rendered from charts/drawbridge by `make manifests`: change the chart, or deploy/values.yaml, instead.\n"
OF_HELM = ("app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ")
"""Labels that say who looks after an object: here, nobody does."""


def main() -> None:
    (DEPLOY / "install.yaml").write_text(rendered())


def rendered() -> str:
    """Raises LabError with Helm's words."""
    helm = str(binaries.ensure("helm")["helm"])
    where = [
        NAME,
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--values",
        str(DEPLOY / "values.yaml"),
        "--skip-tests",
    ]
    done = subprocess.run([helm, "template", *where], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise LabError(f"the chart cannot be rendered: {done.stderr}")
    return HEAD + without_helm(done.stdout)


def without_helm(manifests: str) -> str:
    lines = (line.rstrip() for line in manifests.splitlines())
    return "".join(f"{line}\n" for line in lines if not line.strip().startswith(OF_HELM))


if __name__ == "__main__":
    main()
