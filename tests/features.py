"""Admission features for the tests of the server."""

import time

import msgspec

from webhook.admission import Decision, Request, allow


class Naps:
    """A feature that takes as long as the object's ``nap`` says, in seconds, and says how long it might have taken."""

    name, path = "naps", "/naps"

    def fails_open(self) -> bool:
        return False

    def review(self, request: Request, deadline: float) -> Decision:
        left = f"{deadline - time.monotonic():.3f}"
        if request.object and (nap := msgspec.json.decode(request.object)["nap"]):
            time.sleep(nap)
        return allow(audit={"left": left})
