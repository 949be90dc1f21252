"""`python -m dev.bench.replicas.api DIRECTORY NODES PODS`: an API server with so many objects, and nothing changes.

It serves on a port of 127.0.0.1, which it prints, with the certificate in DIRECTORY. Kinds without objects are empty,
watches are silent, and what is written is answered and forgotten.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from dev.bench.replicas.objects import OWNERS_OF_A_NAMESPACE, PODS_OF_AN_OWNER, Object, namespace, node, pod

VERSION = "200000"
LISTED = {
    "ipreservations",
    "configmaps",
    "deployments",
    "ingressdaemonsets",
    "daemonsets",
    "services",
    "statefulsets",
    "poddisruptionbudgets",
}

Kinds = dict[str, tuple[int, Callable[[int], Object]]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query, last = parse_qs(url.query), url.path.rpartition("/")[2]
        if "watch" in query:
            self._watch()
        elif last in self.server.kinds:
            self._answer(200, self._page(*self.server.kinds[last], query))
        elif last in LISTED:
            self._answer(200, {"metadata": {"resourceVersion": VERSION}, "items": []})
        elif url.path.startswith("/apis/") and url.path.count("/") == 3:  # each group has all kinds
            self._answer(200, {"resources": [{"name": each} for each in LISTED]})
        else:
            self._answer(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": url.path})

    def do_POST(self) -> None:
        self._answer(201, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _page(self, size: int, make: Callable[[int], Object], query: dict[str, list[str]]) -> Object:
        begin = int(query.get("continue", ["0"])[0])
        end = min(begin + int(query.get("limit", [str(size)])[0]), size)
        more = {"continue": str(end)} if end < size else {}
        items = [make(number) for number in range(begin, end)]
        return {"metadata": {"resourceVersion": VERSION, **more}, "items": items}

    def _answer(self, status: int, body: Object) -> None:
        content = msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.ending.wait()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, directory: Path, nodes: int, pods: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        namespaces = pods // (PODS_OF_AN_OWNER * OWNERS_OF_A_NAMESPACE)
        self.kinds: Kinds = {
            "nodes": (nodes, node),
            "pods": (pods, pod),
            "namespaces": (namespaces, namespace),
        }
        self.ending = threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)


if __name__ == "__main__":
    server = Server(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    print(server.server_port, flush=True)
    server.serve_forever()
