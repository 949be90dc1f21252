"""As many deletions at once as an API server sends: none is refused while its time is not over."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

from dev.bench.ip_reservation.load import deletion
from settings import Settings
from tests.server import ROOT, configure, gunicorn, trusting

CALLERS = 256
NAP = 0.3
"""Seconds for a write, as at an API server that is itself under load."""
TIMEOUT = 60

WSGI = """
import os, time
from dev.bench.alone import Cluster, Store
from calico.ledger import Ledger
from runtime import utc_now
from settings import IPReservationSettings
from settings.file import SettingsFile
from webhook.app import create_app
from webhook.ip_reservation.webhook import IPReservationWebhook
from webhook.worker import stopping

class Slow(Store):
    def create(self, name, records, *, timeout):
        time.sleep(float(os.environ["NAP"]))
        return super().create(name, records, timeout=timeout)

client = None  # asked for nothing
settings = SettingsFile(os.environ["DRAWBRIDGE_CONFIG"])
ledger = Ledger(Slow(), "alone")
gate = IPReservationWebhook(Cluster(), ledger, IPReservationSettings, utc_now, believes=lambda _: True)
app = create_app([gate], max_in_flight=settings.current.webhook.threads, draining=stopping)
"""


def test_a_storm_at_one_server_is_answered_by_its_writes_and_nothing_is_refused(tmp_path: Path) -> None:
    configured = configure(tmp_path, drainPeriod="1s")
    environ = configured.environ | {"NAP": str(NAP)}
    (tmp_path / "wsgi.py").write_text(WSGI)
    assert Settings().webhook.threads > CALLERS
    with gunicorn("-c", str(ROOT / "gunicorn.conf.py"), "wsgi:app", cwd=tmp_path, **environ) as server:
        server.wait_for_line("Booting worker")
        answers = Counter(asyncio.run(storm(configured.https)))

    assert answers == {"allowed": CALLERS}


async def storm(port: int) -> list[str]:
    opened = [await connected(port) for _ in range(CALLERS)]
    try:
        return await asyncio.gather(*(ask(number, *each) for number, each in enumerate(opened)))
    finally:
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for _, writer in opened), return_exceptions=True)


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await asyncio.open_connection(
                    "127.0.0.1", port, ssl=trusting(), server_hostname="localhost"
                )
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)  # it is still coming up


async def ask(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """What became of the deletion of one pod."""
    body = deletion(number)
    writer.write(
        f"POST /validate/pods/ip-reservation?timeout={TIMEOUT // 2}s HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    async with asyncio.timeout(TIMEOUT):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        answer = await reader.readexactly(length)
    if " 200 " not in head.splitlines()[0]:
        return head.splitlines()[0]
    response = json.loads(answer)["response"]
    return "allowed" if response["allowed"] else str(response["status"]["message"])
