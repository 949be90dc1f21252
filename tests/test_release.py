"""The files of a release are made of this repository, and name where its image is."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from dev.lab import binaries, chart
from dev.lab.errors import LabError
from dev.lab.release import checksums, kubernetes, notes, packages, sbom
from dev.lab.release.__main__ import make
from dev.lab.release.identity import Release, parse
from dev.lab.release.oci import INDEX, MANIFEST
from tests.charts import helm_needed

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- One thing, [explained](docs/README.md)
  on two lines.

## [0.1.0] - 2026-01-01

### Fixed

- Another thing.
"""
RELEASED = Release("0.2.0", "registry.example", "team/drawbridge", "https://git.example/team/drawbridge")


@pytest.mark.parametrize(
    ("image", "registry", "repository"),
    [
        ("", "", ""),
        ("drawbridge", "", "drawbridge"),
        ("team/drawbridge", "", "team/drawbridge"),
        ("registry.example/team/drawbridge", "registry.example", "team/drawbridge"),
        ("localhost:5000/drawbridge", "localhost:5000", "drawbridge"),
    ],
)
def test_an_image_is_the_two_values_of_the_chart(image: str, registry: str, repository: str) -> None:
    found = parse("v0.2.0", image)

    assert (found.version, found.registry, found.repository) == ("0.2.0", registry, repository)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("0.2",), "VERSION=0.2: not a semantic version"),
        (("",), "VERSION=: not a semantic version"),
        (("0.2.0", "registry.example/drawbridge:0.2.0"), "not an image without a tag"),
        (("0.2.0", "", "git.example/team"), "SOURCE=git.example/team: not a URL"),
    ],
)
def test_what_cannot_be_released_is_refused(given: tuple[str, ...], message: str) -> None:
    with pytest.raises(LabError, match=re.escape(message)):
        parse(*given)


def test_notes_are_the_section_of_the_version_or_of_what_is_not_released_yet() -> None:
    assert notes.of_version(CHANGELOG, "0.1.0") == "### Fixed\n\n- Another thing.\n"
    assert notes.of_version(CHANGELOG, "0.2.0").startswith("### Added")
    with pytest.raises(LabError, match=r"no section \[0.2.0\]"):
        notes.of_version("# Changelog\n", "0.2.0")


def test_each_change_of_the_changelog_has_a_kind_that_artifact_hub_knows() -> None:
    changelog = (chart.ROOT / "CHANGELOG.md").read_text()
    released, next_one = (notes.changes(notes.of_version(changelog, each)) for each in ("0.1.0", "99.0.0"))

    kinds = {each.kind for each in (*released, *next_one)}
    assert kinds <= {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert len(released) > 20


@helm_needed
def test_the_chart_of_a_release_installs_its_image(tmp_path: Path) -> None:
    made = tmp_path / "0.2.0"
    made.mkdir()
    command_of = made / "drawbridge-0.2.0-linux-amd64.tar.gz"
    command_of.touch()
    files = {path.name for path in make(RELEASED, tmp_path, ["chart", "checksums"])}

    charts = {"drawbridge-0.2.0.tgz", "eklet-0.2.0.tgz", "install.yaml"}
    assert files == {"NOTES.md", "SHA256SUMS", command_of.name, "drawbridge.yaml", *charts}
    helm = str(binaries.ensure("helm")["helm"])
    shown = subprocess.check_output([helm, "show", "chart", str(made / "drawbridge-0.2.0.tgz")], text=True)
    metadata = yaml.safe_load(shown)
    assert (metadata["version"], metadata["appVersion"]) == ("0.2.0", "0.2.0")
    assert metadata["home"] == RELEASED.source
    assert metadata["icon"].endswith("/raw/v0.2.0/charts/drawbridge/icon.svg")
    [image] = yaml.safe_load(metadata["annotations"]["artifacthub.io/images"])
    assert image["image"] == "registry.example/team/drawbridge:0.2.0"
    command = [
        helm,
        "template",
        "x",
        str(made / "drawbridge-0.2.0.tgz"),
        "--set",
        "image.registry=mirror.example",
    ]
    assert "image: mirror.example/team/drawbridge:0.2.0" in subprocess.check_output(command, text=True)
    installed = [each for each in yaml.safe_load_all((made / "install.yaml").read_text()) if each]
    assert installed[0]["kind"] == "Namespace"
    images = {
        container["image"]
        for each in installed
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    values = subprocess.check_output([helm, "show", "values", str(made / "drawbridge-0.2.0.tgz")], text=True)
    runbooks = yaml.safe_load(values)["monitoring"]["prometheusRule"]["runbookBaseURL"]
    assert runbooks == f"{RELEASED.source}/blob/v0.2.0/docs/how-to/runbooks"
    assert images == {"registry.example/team/drawbridge:0.2.0"}


@helm_needed
def test_the_same_source_makes_the_same_chart(tmp_path: Path) -> None:
    first, second = (make(RELEASED, tmp_path / each, ["chart"]) for each in "ab")

    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_repository_without_a_registry_leaves_the_registry_to_the_operator() -> None:
    values = packages.with_defaults(
        chart.CHART.joinpath("values.yaml").read_text(), parse("0.2.0", "team/drawbridge")
    )

    assert yaml.safe_load(values)["image"]["registry"] == ""
    assert yaml.safe_load(values)["image"]["repository"] == "team/drawbridge"
    with pytest.raises(LabError, match="has no line '  registry: \"\"'"):
        packages.with_defaults("image: {}\n", RELEASED)


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")

    checksums.write(tmp_path)
    checksums.write(tmp_path)
    command = ["sha256sum", "--check", "--strict", checksums.NAME]
    printed = subprocess.check_output(command, cwd=tmp_path, text=True)
    assert printed == "a: OK\nb: OK\n"


def archive(file: Path, architecture: str, files: dict[str, str]) -> Path:
    """An image of one layer."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as opened:
        for name, text in files.items():
            add(opened, name, text.encode())
    with tarfile.open(file, "w") as whole:
        config = blob(whole, json.dumps({"os": "linux", "architecture": architecture}).encode())
        described = blob(whole, layer.getvalue()) | {"mediaType": "application/vnd.oci.image.layer.v1.tar"}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [described]}
        found = blob(whole, json.dumps(manifest).encode()) | {"mediaType": MANIFEST}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [found]}
        add(whole, "index.json", json.dumps(index).encode())
        add(whole, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    return file


def blob(whole: tarfile.TarFile, data: bytes) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    add(whole, f"blobs/sha256/{digest}", data)
    return {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": f"sha256:{digest}",
        "size": len(data),
    }


def add(whole: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    whole.addfile(member, io.BytesIO(data))


def test_the_sbom_lists_what_debian_and_python_have_put_into_the_image(tmp_path: Path) -> None:
    files = {
        "var/lib/dpkg/status.d/zlib1g": "Package: zlib1g\nVersion: 1:1.2.13+dfsg-1\nArchitecture: arm64\n",
        "opt/venv/lib/python3.11/site-packages/PyYAML-6.0.3.dist-info/METADATA": "Name: PyYAML\nVersion: 6.0.3\n",
        "opt/venv/lib/python3.11/site-packages/flask-3.1.3.dist-info/METADATA": (
            "Name: Flask\nVersion: 3.1.3\nLicense-Expression: BSD-3-Clause\n\nName: not this\n"
        ),
        "app/wsgi.py": "",
    }

    found = json.loads(sbom.of_archive(archive(tmp_path / "image.tar", "arm64", files), RELEASED))
    assert [each["purl"] for each in found["components"]] == [
        "pkg:deb/debian/zlib1g@1%3A1.2.13%2Bdfsg-1?arch=arm64",
        "pkg:pypi/flask@3.1.3",
        "pkg:pypi/pyyaml@6.0.3",
    ]
    assert found["components"][1]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert found["dependencies"][0]["dependsOn"] == [each["bom-ref"] for each in found["components"]]


def test_the_supported_versions_are_those_of_the_readme() -> None:
    readme = (chart.ROOT / "README.md").read_text()

    first, *_, last = kubernetes.supported()
    [tested] = re.findall(r"\| Kubernetes \| ([\d.]+) or newer \| ([\d.]+), ([\d.]+) \|", readme)
    assert (first, True, True) == (tested[0], tested[1].startswith(first), tested[2].startswith(last))
