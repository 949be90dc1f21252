"""The packages in the image, from the files of Debian and Python in it, as CycloneDX."""

from __future__ import annotations

import json
import re
import tarfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

from dev.lab.release.identity import Release, committed
from dev.lab.release.oci import layers

DEBIAN = re.compile(r"(?:\./)?var/lib/dpkg/status\.d/[^/]+")
PYTHON = re.compile(r"(?:\./)?.+\.dist-info/METADATA")
Component = dict[str, Any]


def of_archive(archive: Path, release: Release) -> str:
    found = sorted(_components(archive), key=lambda each: str(each["purl"]))
    image = f"pkg:oci/drawbridge@{release.version}?arch={release.architecture}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([image, found]))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(committed(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "container",
                "bom-ref": image,
                "name": "drawbridge",
                "version": release.version,
                "purl": image,
            },
        },
        "components": found,
        "dependencies": [{"ref": image, "dependsOn": [each["bom-ref"] for each in found]}],
    }
    return json.dumps(document, indent=2) + "\n"


def _components(archive: Path) -> Iterator[Component]:
    for layer in layers(archive):
        for member in layer:
            if PYTHON.fullmatch(member.name):
                yield _python(_read(layer, member))
            elif DEBIAN.fullmatch(member.name):
                yield _debian(_read(layer, member))


def _read(layer: tarfile.TarFile, member: tarfile.TarInfo) -> Message:
    opened = layer.extractfile(member)
    return message_from_bytes(opened.read() if opened else b"")


def _python(fields: Message) -> Component:
    name = re.sub(r"[-_.]+", "-", fields["Name"]).lower()
    found = _component(name, fields["Version"], f"pkg:pypi/{name}@{fields['Version']}")
    license_ = fields["License-Expression"]
    return found | ({"licenses": [{"expression": license_}]} if license_ else {})


def _debian(fields: Message) -> Component:
    name, version = fields["Package"], fields["Version"]
    escaped = version.replace("+", "%2B").replace(":", "%3A")
    return _component(name, version, f"pkg:deb/debian/{name}@{escaped}?arch={fields['Architecture']}")


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
