"""Write what is generated: checks of the chart, deploy/, renders of the tests, pages."""

from __future__ import annotations

from dev.lab import chart, cli_page, kustomize, renders, values_page, values_schema
from dev.lab.repository import ROOT

DEPLOY = ROOT / "deploy"
HEAD = "# Rendered from charts/drawbridge by `make manifests`: change the chart, or deploy/values.yaml, instead.\n"


def main() -> None:
    values_schema.SCHEMA.write_text(values_schema.schema())
    values_schema.CHECKS.write_text(values_schema.checks())
    values_page.write()
    (DEPLOY / "install.yaml").write_text(rendered())
    kustomize.write()
    cli_page.write()
    renders.write()


def rendered() -> str:
    """For those who install without Helm; raises LabError with Helm's words."""
    return HEAD + chart.manifests((DEPLOY / "values.yaml").read_text(), "--skip-tests")


if __name__ == "__main__":
    main()
