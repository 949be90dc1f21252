"""Admission features for the tests of the server."""

import time

import msgspec

from webhook.admission import Decision, Request, allow


class Naps:
    """A feature that takes as long as the object's ``nap`` says, in seconds."""

    name, path = "naps", "/naps"

    def fails_open(self) -> bool:
        return False

    def review(self, request: Request, deadline: float) -> Decision:
        if request.object and (nap := msgspec.json.decode(request.object)["nap"]):
            time.sleep(nap)
        return allow()
