"""Write what is generated in the repository: the checks of the chart, deploy/install.yaml, the renders of the tests."""

from __future__ import annotations

from lab import chart, kustomize, renders, values_schema

DEPLOY = chart.ROOT / "deploy"
HEAD = "# Rendered from charts/drawbridge by `make manifests`: change the chart, or deploy/values.yaml, instead.\n"


def main() -> None:
    values_schema.SCHEMA.write_text(values_schema.schema())
    values_schema.CHECKS.write_text(values_schema.checks())
    (DEPLOY / "install.yaml").write_text(rendered())
    kustomize.write()
    renders.write()


def rendered() -> str:
    """For those who install without Helm; raises LabError with Helm's words."""
    return HEAD + chart.manifests((DEPLOY / "values.yaml").read_text(), "--skip-tests")


if __name__ == "__main__":
    main()
