"""What stands in a volume, as a function of values; and putting it there, all at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dev.lab.kubelet.expand import required
from dev.lab.kubelet.values import CannotRun, Data, Kind, Place, Pod, Store, field

Files = dict[str, bytes]
Tokens = Mapping[tuple[str, int], str]  # audience and wished life in seconds: a token bound to the pod

KEYED: tuple[tuple[str, Kind], ...] = (("configMap", "ConfigMap"), ("secret", "Secret"))
TOKEN_LIFE = 3600


def contents(pod: Pod, volume: Mapping[str, Any], place: Place, store: Store, tokens: Tokens) -> Files:
    """The files of a volume by their path in it; none for an ``emptyDir``."""
    files: Files = {}
    for source in volume["projected"].get("sources", ()) if "projected" in volume else (volume,):
        files.update(_source(pod, source, place, store, tokens))
    return files


def _source(pod: Pod, source: Mapping[str, Any], place: Place, store: Store, tokens: Tokens) -> Files:
    if "downwardAPI" in source:
        return dict(_downward(pod, source["downwardAPI"], place))
    if "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        return {wanted["path"]: tokens[token_key(wanted)].encode()}
    for name, kind in KEYED:
        if name in source:
            return _keyed(required(store, kind, source[name]), source[name], kind)
    return {}


def _keyed(data: Data | None, source: Mapping[str, Any], kind: Kind) -> Files:
    if data is None:
        return {}
    if not source.get("items"):
        return dict(data)
    missing = [item["key"] for item in source["items"] if item["key"] not in data]
    if missing and not source.get("optional"):
        raise CannotRun("FailedMount", f"{kind.lower()} references non-existent key: {missing[0]}")
    return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}


def _downward(pod: Pod, source: Mapping[str, Any], place: Place) -> Iterator[tuple[str, bytes]]:
    for item in source.get("items", ()):
        if "fieldRef" not in item:
            raise CannotRun("FailedMount", f"downwardAPI item {item['path']!r}: only a fieldRef is known")
        yield item["path"], field(pod, place, item["fieldRef"]["fieldPath"]).encode()


def tokens_of(pod: Pod) -> set[tuple[str, int]]:
    """The tokens that the pod's volumes hold."""
    sources = (
        each
        for volume in pod.spec.get("volumes", ())
        for each in volume.get("projected", {}).get("sources", ())
    )
    return {token_key(each["serviceAccountToken"]) for each in sources if "serviceAccountToken" in each}


def token_key(source: Mapping[str, Any]) -> tuple[str, int]:
    return source.get("audience", ""), source.get("expirationSeconds", TOKEN_LIFE)


def write(directory: Path, files: Files) -> bool:
    """Make the directory hold the files; whether it had to change.

    As the kubelet does: readers see all of the old or all of the new, by one rename of the link ``..data``
    through which each visible name leads (``pkg/volume/util/atomic_writer.go``).
    """
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / "..data"
    if data.is_symlink() and read(data) == files:
        return False
    old = data.resolve() if data.is_symlink() else None
    fresh = _write_fresh(directory, files)
    link = directory / "..data_tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.rename(data)
    _link_names(directory, {Path(path).parts[0] for path in files})
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def read(directory: Path) -> Files:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def _write_fresh(directory: Path, files: Files) -> Path:
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=directory))
    fresh.chmod(0o755)
    for path, content in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return fresh


def _link_names(directory: Path, names: set[str]) -> None:
    for name in names:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(os.path.join("..data", name))
    for path in directory.iterdir():
        if path.is_symlink() and not path.name.startswith("..") and path.name not in names:
            path.unlink()
