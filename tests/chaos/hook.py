"""The API server answers writes of IPReservations as a test wants: by a validating webhook of the test's own."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from certs import issue
from dev.lab.session import Lab
from kube.client import Resource
from tests.cluster.workloads import GROUPS

WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
NAME = "chaos.drawbridge.test"
DRAWBRIDGE = "system:serviceaccount:drawbridge:"
WRITES = {
    "apiGroups": ["projectcalico.org", "crd.projectcalico.org"],
    "resources": ["ipreservations"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
}
PROBE = {"apiVersion": "crd.projectcalico.org/v1", "kind": "IPReservation", "metadata": {"name": "probe"}}


@dataclass(frozen=True)
class Answer:
    """What becomes of a write: it takes *seconds* longer, and is refused when there is a *code*."""

    code: int = 0
    reason: str = ""
    seconds: float = 0.0
    retry_after: int = 0


PASS, STUCK = Answer(), Answer(seconds=8.0)
Review = dict[str, Any]
Answering = Callable[[Review], Answer]


def in_turn(*answers: Answer) -> Answering:
    """Over and over."""
    turns, taking = cycle(answers), threading.Lock()

    def answer(_review: Review) -> Answer:
        with taking:
            return next(turns)

    return answer


def stuck_in_releasing() -> Answering:
    """The first write that takes addresses out of a segment passes, and no other one for a long time.

    What is taken out is over, or has been compacted.
    """
    releases, taking = count(), threading.Lock()

    def answer(review: Review) -> Answer:
        with taking:
            return STUCK if _is_release(review["request"]) and next(releases) else PASS

    return answer


def _is_release(request: Review) -> bool:
    before, after = (
        (request[which] or {}).get("spec", {}).get("reservedCIDRs", ()) for which in ("oldObject", "object")
    )
    return len(before) > len(after)


class Hook:
    """Gives Drawbridge its *answers*, and remembers them; others pass."""

    def __init__(self, answers: Answering) -> None:
        self._answers = answers
        self.asked, self._ending = threading.Event(), threading.Event()
        self.given: list[Answer] = []

    def respond(self, review: Review) -> Review:
        request = review["request"]
        self.asked.set()
        ours = request["userInfo"]["username"].startswith(DRAWBRIDGE)
        answer = self._answers(review) if ours else PASS
        self.given.append(answer)
        self._ending.wait(answer.seconds)
        response = {"uid": request["uid"], "allowed": not answer.code, "status": _status(answer)}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}

    def end(self) -> None:
        """Delay no answer any more."""
        self._ending.set()


def _status(answer: Answer) -> Review:
    details = {"retryAfterSeconds": answer.retry_after}
    return {"code": answer.code, "reason": answer.reason, "message": "by way of trial", "details": details}


@contextmanager
def hooked(lab: Lab, answers: Answering) -> Iterator[Hook]:
    """While the block runs, each write of an IPReservation by Drawbridge meets one of *answers*."""
    hook = Hook(answers)
    with serving(hook) as (port, ca):
        lab.client.create(WEBHOOK_CONFIGURATIONS, registration(NAME, port, ca, WRITES))
        try:
            lab.wait(lambda: _is_asked(lab, hook), 30, "the API server to ask the test's webhook")
            yield hook
        finally:
            lab.client.delete(WEBHOOK_CONFIGURATIONS, NAME)


def _is_asked(lab: Lab, hook: Hook) -> bool:
    """Whether the API server has heard of the registration; it does so a moment later."""
    path = GROUPS["v1"].path() + "?dryRun=All"
    lab.client.request("POST", path, body=PROBE)
    return hook.asked.is_set()


@contextmanager
def serving(hook: Hook) -> Iterator[tuple[int, bytes]]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(hook.respond(review)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # each is waited for: what it has opened is closed then
    ca = _encrypt(server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], ca
    finally:
        hook.end()
        server.shutdown()
        server.server_close()
        thread.join()


def _encrypt(server: ThreadingHTTPServer) -> bytes:
    """Let *server* speak TLS; the authority that its certificate is of."""
    begin = datetime.now(UTC) - timedelta(minutes=5)
    ca = issue.new_ca("chaos", begin, begin + timedelta(days=1))
    leaf = issue.new_leaf(ca, [], ["127.0.0.1"], begin, begin + timedelta(days=1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as directory:
        pair = Path(directory) / "pair.pem"
        pair.write_bytes(leaf.certificate + leaf.key)
        context.load_cert_chain(pair)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return ca.certificate


def registration(name: str, port: int, ca: bytes, *rules: Mapping[str, list[str]]) -> dict[str, Any]:
    """Of a webhook of the test's own; of a rule, only what it is narrower than everything in has to be given."""
    everything = {"apiGroups": ["*"], "apiVersions": ["*"]}
    return {
        "apiVersion": WEBHOOK_CONFIGURATIONS.api_version,
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": name,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/",
                    "caBundle": base64.b64encode(ca).decode(),
                },
                "rules": [everything | dict(rule) for rule in rules],
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }
        ],
    }
