"""Questions to an admission webhook, and what the API server makes of the answers."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import jsonpatch
import msgspec

from webhook.admission import Decision, Request, parse, render


def asked(new: object, old: object = None, **fields: object) -> Request:
    """About *new*, which was *old* until now; it is created where that is nothing."""
    given = {"uid": "request-1", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": given | fields}
    return parse(msgspec.json.encode(review))


def admitted(new: dict[str, Any], question: Request, decision: Decision) -> dict[str, Any]:
    """*new* as the API server has it after it applied the answer."""
    response = msgspec.json.decode(render(question, decision))["response"]
    result: dict[str, Any] = jsonpatch.apply_patch(
        new, msgspec.json.decode(b64decode(response.get("patch", "W10=")))
    )
    return result
