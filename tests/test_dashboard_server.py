"""`drawbridge dashboard`: on this machine only, with an address that only the user can read."""

from __future__ import annotations

import http.client
import re
import socket
import stat
import webbrowser
from contextlib import closing
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from flask import Flask

from cli.errors import Failure
from dashboard import command
from dashboard.app import Guard, create_app
from dashboard.command import HOST, listen, server_of
from dev.fake_api import FakeAPI
from tests import cli


def test_it_listens_on_this_machine_only() -> None:
    with closing(listen(0)) as listener:
        assert listener.getsockname()[0] == HOST == "127.0.0.1"


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with closing(listen(0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=f"port {port} cannot be opened: Address already in use") as failure:
            listen(port)

    assert failure.value.way_out == "choose another one with --port"


def test_requests_are_answered_and_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    with closing(listen(0)) as listener:
        guard = Guard(listener.getsockname()[1])
        server = server_of(listener, create_app(cli.cluster_of(FakeAPI()), guard))
        thread = Thread(target=server.serve_forever)
        thread.start()
        client = http.client.HTTPConnection(HOST, guard.port)
        client.request("GET", f"/?token={guard.token}")
        answer = client.getresponse()
        assert answer.status == 200
        assert answer.headers["Server"] == "drawbridge"
        answer.read()
        client.close()
        server.shutdown()
        thread.join()
        server.server_close()

    assert capfd.readouterr() == ("", "")


def served(monkeypatch: pytest.MonkeyPatch, api: FakeAPI, *arguments: str) -> str:
    """What the command prints; it serves nothing."""

    def no_serve(listener: socket.socket, app: Flask) -> None:
        assert app.url_map.bind("localhost").match("/rollouts")

    monkeypatch.setattr(command, "serve", no_serve)
    result = cli.run(api, "dashboard", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_address_is_printed_and_opened_through_a_private_file(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, str, int]] = []

    def open_browser(url: str) -> bool:
        file = Path(unquote(urlsplit(url).path))
        opened.append((url, file.read_text(), stat.S_IMODE(file.parent.stat().st_mode)))
        return True

    monkeypatch.setattr(webbrowser, "open", open_browser)
    output = served(monkeypatch, cli.installed())

    [address] = re.findall(r"http://127\.0\.0\.1:\d+/\?token=\S+", output)
    [(url, content, mode)] = opened
    assert url.startswith("file://")
    assert address not in url
    assert address in content
    assert mode == 0o700
    assert not Path(unquote(urlsplit(url).path)).exists()


def test_without_a_browser_the_address_is_only_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("a browser was opened"))

    assert "Ctrl-C ends it." in served(monkeypatch, cli.installed(), "--no-browser")
