"""`drawbridge dashboard`."""

from __future__ import annotations

import socket
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from html import escape
from pathlib import Path
from typing import Any

import click
from flask import Flask
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from cli.errors import Failure
from cli.session import Command, Session, log_no_decisions, pass_session
from dashboard.app import Guard, create_app

HOST = "127.0.0.1"


@click.command(cls=Command)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Local port."
)
@click.option("--no-browser", is_flag=True, help="Only print the URL.")
@pass_session
def dashboard(session: Session, port: int, no_browser: bool) -> None:
    """Open a live dashboard in the browser.

    Served on 127.0.0.1 with your kubeconfig and permissions, until Ctrl-C. Only a browser that opens the printed URL
    can read it.
    """
    log_no_decisions()
    cluster = session.cluster
    with closing(listen(port)) as listener:
        guard = Guard(listener.getsockname()[1])
        app = create_app(cluster, guard)
        session.output.say(guard.url)
        session.output.say("Ctrl-C ends it.")
        with nullcontext() if no_browser else _opened(guard.url):
            serve(listener, app)


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """The browser is given a file that only the user can read: all users can read arguments of programs."""
    with tempfile.TemporaryDirectory(prefix="drawbridge-") as directory:
        file = Path(directory) / "dashboard.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}">')
        webbrowser.open(file.as_uri())
        yield


class Handler(WSGIRequestHandler):
    timeout = 30
    """Seconds for a request."""

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
    """One thread for each connection."""
    port = listener.getsockname()[1]
    return make_server(HOST, port, app, threaded=True, request_handler=Handler, fd=listener.fileno())


def serve(listener: socket.socket, app: Flask) -> None:
    server_of(listener, app).serve_forever()
