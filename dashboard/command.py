"""`drawbridge dashboard`."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from html import escape
from pathlib import Path

import click

from cli.session import Command, Session, pass_session
from dashboard.app import create_app
from dashboard.guard import Guard
from dashboard.pages import explanation_of, pages_of
from dashboard.server import listen, serve
from dashboard.writer import writer_of
from runtime import threading


@click.command(cls=Command)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Of 127.0.0.1."
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@pass_session
def dashboard(session: Session, port: int, no_browser: bool) -> None:
    """Show all of this live in the browser, on a page of this machine.

    With your kubeconfig and permissions, until Ctrl-C. Only a browser that opens the printed address can read it.
    """
    cluster, stop = session.cluster, threading.Event()
    with closing(listen(port)) as listener:
        guard = Guard(listener.getsockname()[1])
        app = create_app(pages_of(cluster), partial(explanation_of, cluster), guard, writer_of(cluster), stop)
        session.output.say(guard.url)
        session.output.say("Ctrl-C ends it.")
        with _opened(guard.url, not no_browser):
            serve(listener, app, stop)


@contextmanager
def _opened(url: str, wanted: bool) -> Iterator[None]:
    """The browser is given a file that only the user can read: all users can read arguments of programs."""
    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="drawbridge-") as directory:
        file = Path(directory) / "dashboard.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}">')
        webbrowser.open(file.as_uri())
        yield
