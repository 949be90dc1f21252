"""Admission features for the tests of the server."""

import time

import msgspec

from kube.waiting import give_up
from webhook.admission import Decision, Request, allow


class Naps:
    """A feature that waits as long as the object's ``nap`` says, in seconds, and says how long it might have taken.

    It is stuck for as long as its ``stuck`` says: then it has its turn and does nothing.
    """

    name, path = "naps", "/naps"

    def fails_open(self) -> bool:
        return False

    def review(self, request: Request, deadline: float) -> Decision:
        left = f"{deadline - time.monotonic():.3f}"
        if request.object:
            wanted = msgspec.json.decode(request.object)
            if wanted["nap"]:
                give_up()
                time.sleep(wanted["nap"])
            if wanted["stuck"]:
                time.sleep(wanted["stuck"])
        return allow(audit={"left": left})
