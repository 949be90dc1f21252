"""Listen on this machine only, until the user interrupts."""

from __future__ import annotations

import socket
from typing import Any

from flask import Flask
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from cli.errors import Failure
from runtime import threading

HOST = "127.0.0.1"


class Handler(WSGIRequestHandler):
    timeout = 30
    """Seconds for a request; streams are only written to."""

    def log(self, *_arguments: Any, **_named: Any) -> None:
        """Nothing: the first address has the token."""

    def version_string(self) -> str:
        return "drawbridge"


def listen(port: int) -> socket.socket:
    """On *port*, or on a free one for 0. Failure when it is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise Failure(f"port {port} cannot be opened: {reason}", "choose another one with --port") from error
    return listener


def server_of(listener: socket.socket, app: Flask) -> BaseWSGIServer:
    """One thread for each open page."""
    port = listener.getsockname()[1]
    return make_server(HOST, port, app, threaded=True, request_handler=Handler, fd=listener.fileno())


def serve(listener: socket.socket, app: Flask, stop: threading.Event) -> None:
    server = server_of(listener, app)
    try:
        server.serve_forever()
    finally:
        stop.set()
        server.server_close()
