"""Labels and annotations of a Calico object, the same in both of its API groups.

Calico's API server (``projectcalico.org/v3``) stores the metadata that its clients write as JSON in one annotation of
the custom resource (``crd.projectcalico.org/v1``), and that annotation wins over the real labels and annotations. So
it does here, and a write through v1 must not leave an old copy behind: :func:`laid_open`.
(libcalico-go, ``lib/backend/k8s/resources/resources.go``; older versions kept both where they belong.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from kube.types import ObjectMeta

METADATA = "projectcalico.org/metadata"


class _Hidden(msgspec.Struct):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


def revealed(metadata: ObjectMeta) -> ObjectMeta:
    """*metadata* with the labels and annotations that ``projectcalico.org/v3`` would show."""
    hidden = _decode(metadata)
    if not hidden.labels and not hidden.annotations:
        return metadata
    return replace(
        metadata,
        labels=metadata.labels | hidden.labels,
        annotations=metadata.annotations | hidden.annotations,
    )


def laid_open(metadata: ObjectMeta, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """A merge patch of *metadata* that sets *annotations* and puts what is hidden where it belongs."""
    hidden = _decode(metadata)
    if not hidden.labels and not hidden.annotations:
        return {"annotations": annotations}
    rest = msgspec.json.decode(metadata.annotations[METADATA], type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in rest.items() if name not in ("labels", "annotations")}
    still_hidden = {METADATA: msgspec.json.encode(kept).decode()}
    return {"labels": hidden.labels, "annotations": {**hidden.annotations, **still_hidden, **annotations}}


def _decode(metadata: ObjectMeta) -> _Hidden:
    try:
        return msgspec.json.decode(metadata.annotations.get(METADATA, "{}"), type=_Hidden)
    except msgspec.MsgspecError:  # then Calico itself cannot read the object
        return _Hidden()
