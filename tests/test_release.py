"""The files of a release are made of this repository, and name where its image is."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lab import binaries, chart
from lab.errors import LabError
from lab.release import checksums, image, kubernetes, notes, packages, publish, sbom
from lab.release.__main__ import make
from lab.release.identity import Release, parse
from lab.release.oci import INDEX, MANIFEST, layers
from lab.waiting import until
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


def test_links_of_the_notes_lead_to_the_tag() -> None:
    text = notes.page(RELEASED, notes.of_version(CHANGELOG, "0.2.0"))

    assert "](https://git.example/team/drawbridge/blob/v0.2.0/docs/README.md)" in text


def test_the_changes_of_artifact_hub_are_the_entries_without_links() -> None:
    [found] = notes.changes(notes.of_version(CHANGELOG, "0.2.0"))

    assert (found.kind, found.text) == ("added", "One thing, explained on two lines.")


def test_each_change_of_the_changelog_has_a_kind_that_artifact_hub_knows() -> None:
    found = notes.changes(notes.of_version((chart.ROOT / "CHANGELOG.md").read_text(), "99.0.0"))

    assert {each.kind for each in found} <= {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert len(found) > 20


def test_the_command_of_a_release_says_its_version(tmp_path: Path) -> None:
    [path] = make(RELEASED, tmp_path, ["cli"])
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)

    assert path.name.startswith("kubectl-drawbridge-0.2.0-linux-")
    assert done.stdout == "drawbridge, version 0.2.0\n"


@helm_needed
def test_the_chart_of_a_release_installs_its_image(tmp_path: Path) -> None:
    files = {path.name for path in make(RELEASED, tmp_path, ["chart", "checksums"])}
    made = tmp_path / "0.2.0"

    assert files == {"NOTES.md", "SHA256SUMS", "drawbridge-0.2.0.tgz", "install.yaml"}
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


@contextmanager
def registry(directory: Path) -> Iterator[str]:
    """An empty one on loopback, by its address."""
    crane = str(binaries.ensure("crane")["crane"])
    log = directory / "registry.log"
    command = [crane, "registry", "serve", "--address", "127.0.0.1:0"]
    with log.open("w") as output, subprocess.Popen(command, stderr=output, stdout=output) as process:
        try:
            until(lambda: "serving on port" in log.read_text(), 30, "the registry to listen")
            [port] = re.findall(r"serving on port (\d+)", log.read_text())
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.nightly
def test_both_architectures_are_pushed_under_one_name_and_the_chart_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "0.2.0"
    make(RELEASED, tmp_path, ["chart"])
    for architecture in ("amd64", "arm64"):
        archive(
            made / f"drawbridge-0.2.0-image-{architecture}.tar", architecture, {"app/wsgi.py": architecture}
        )

    with registry(tmp_path) as host:
        image, charts = f"{host}/team/drawbridge", f"{host}/team/charts"
        given = ["0.2.0", f"--image={image}", f"--charts={charts}", f"--output={tmp_path}", "--plain-http"]
        assert publish.main(given) == 0
        printed = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
        crane = str(binaries.ensure("crane")["crane"])
        command = [crane, "manifest", "--insecure", printed["image"]]
        index = json.loads(subprocess.check_output(command, text=True))
        digest = subprocess.check_output(
            [crane, "digest", "--insecure", f"{charts}/drawbridge:0.2.0"], text=True
        )
    assert [each["platform"]["architecture"] for each in index["manifests"]] == ["amd64", "arm64"]
    assert printed["image"] == f"{image}@{printed['digest']}"
    assert printed["chart"] == f"{charts}/drawbridge@{digest.strip()}"
    assert printed["version"] == "0.2.0"


def test_nothing_is_pushed_without_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "0.2.0").mkdir()

    given = [
        "0.2.0",
        "--image=registry.example/drawbridge",
        "--charts=registry.example",
        f"--output={tmp_path}",
    ]
    assert publish.main(given) == 1
    assert "no archive of an image" in capsys.readouterr().err


def test_the_supported_versions_are_those_of_the_readme() -> None:
    readme = (chart.ROOT / "README.md").read_text()

    first, *_, last = kubernetes.supported()
    [tested] = re.findall(r"\| Kubernetes \| ([\d.]+) or newer \| ([\d.]+), ([\d.]+) \|", readme)
    assert (first, True, True) == (tested[0], tested[1].startswith(first), tested[2].startswith(last))


def test_an_archive_of_docker_becomes_one_of_the_oci_with_the_same_layers(tmp_path: Path) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as opened:
        add(opened, "app/wsgi.py", b"app")
    with tarfile.open(tmp_path / "docker.tar", "w") as whole:
        add(whole, "config.json", b'{"os": "linux", "architecture": "amd64"}')
        add(whole, "layer.tar", layer.getvalue())
        add(whole, "manifest.json", json.dumps([{"Config": "config.json", "Layers": ["layer.tar"]}]).encode())

    image.convert(tmp_path / "docker.tar", tmp_path / "oci.tar", "0.2.0")
    assert [member.name for each in layers(tmp_path / "oci.tar") for member in each] == ["app/wsgi.py"]
    publish.combine([tmp_path / "oci.tar"], tmp_path / "layout")
    [found] = json.loads((tmp_path / "layout" / "index.json").read_text())["manifests"]
    assert found["platform"] == {"os": "linux", "architecture": "amd64"}
    assert (
        found["digest"]
        == f"sha256:{sha256(tmp_path / 'layout' / 'blobs' / found['digest'].replace(':', '/'))}"
    )


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
