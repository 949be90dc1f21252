"""What a leader keeps of the metadata of thousands of pods: little, and once for all pods of a template."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache

from kube.types import ObjectMeta, OwnerReference

NOTHING: dict[str, str] = {}


def compact(metadata: ObjectMeta, annotations: Iterable[str]) -> ObjectMeta:
    """With these annotations alone, of its owners the controller, and without its creation."""
    owner = metadata.controller
    return ObjectMeta(
        name=metadata.name,
        namespace=sys.intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=_shared(tuple(metadata.labels.items())),
        annotations=only(metadata.annotations, annotations),
        owner_references=_owners(owner) if owner else (),
        deletion_timestamp=metadata.deletion_timestamp,
    )


def only(values: dict[str, str], names: Iterable[str]) -> dict[str, str]:
    return {sys.intern(name): sys.intern(values[name]) for name in names if name in values} or NOTHING


@lru_cache(maxsize=4096)
def _owners(controller: OwnerReference) -> tuple[OwnerReference, ...]:
    return (controller,)


@lru_cache(maxsize=4096)
def _shared(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {sys.intern(name): sys.intern(value) for name, value in labels}
