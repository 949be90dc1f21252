"""Write what stands in the repository as the chart renders it: deploy/install.yaml, and the renders of the tests."""

from __future__ import annotations

from lab import chart, renders

DEPLOY = chart.ROOT / "deploy"
HEAD = "# Rendered from charts/drawbridge by `make manifests`: change the chart, or deploy/values.yaml, instead.\n"


def main() -> None:
    (DEPLOY / "install.yaml").write_text(rendered())
    renders.write()


def rendered() -> str:
    """For those who install without Helm; raises LabError with Helm's words."""
    return HEAD + chart.manifests((DEPLOY / "values.yaml").read_text(), "--skip-tests")


if __name__ == "__main__":
    main()
