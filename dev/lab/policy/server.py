"""The policy's webhook: AdmissionReviews over TLS."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonpatch

from certs import issue
from dev.lab.policy.mutations import mutated

HOST = "127.0.0.1"
VALID = timedelta(days=30)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = json.dumps({**review, "response": response(review["request"])}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def response(request: dict[str, Any]) -> dict[str, Any]:
    """Allowed, with what the policy changes as a JSON patch."""
    old = request["object"]
    new = mutated(request["kind"]["kind"], old, is_new=request["operation"] == "CREATE")
    allowed: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if new == old:
        return allowed
    patch = jsonpatch.make_patch(old, new).to_string()
    return allowed | {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}


@contextmanager
def serving(directory: Path, port: int) -> Iterator[bytes]:
    """The authority that clients must trust, while the webhook answers at *port*; keys lie in *directory*."""
    begin = datetime.now(UTC) - timedelta(minutes=5)
    authority = issue.new_ca("policy of the lab", begin, begin + VALID)
    leaf = issue.new_leaf(authority, [], [HOST], begin, begin + VALID)
    pair = directory / "policy.pem"
    pair.touch(mode=0o600)
    pair.write_bytes(leaf.certificate + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    with Server((HOST, port), Handler) as server:
        # The handshake belongs to the thread of its connection: one that is slow must not stop the others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        yield authority.certificate
        server.shutdown()
