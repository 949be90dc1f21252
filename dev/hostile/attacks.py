"""Hostile clients: each of them goes on until it is cancelled, and counts what it got."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

PAUSE = 0.5
"""Seconds between two attempts of a client: a thousand of them open two thousand connections per second at most."""
PATIENCE = 40.0
LARGEST = 6_500_000
RESERVE, VALIDATE, DEFAULT = (
    "/validate/pods/ip-reservation",
    "/validate/ingressdaemonsets",
    "/mutate/ingressdaemonsets",
)
PLACE = "/mutate/pods/elasticity"


@dataclass(frozen=True)
class Target:
    host: str
    port: int
    health: int
    metrics: int
    source: str = "127.0.0.1"
    """The address that a client has."""


@dataclass
class Tally:
    """What the clients of an attack got: statuses of responses, and connections that were closed or timed out."""

    results: Counter[str] = field(default_factory=Counter)
    largest: int = 0

    def note(self, answer: bytes) -> None:
        self.results[answer[9:12].decode() if answer.startswith(b"HTTP/1.1 ") else "closed"] += 1
        self.largest = max(self.largest, len(answer))

    def add(self, other: Tally) -> None:
        self.results += other.results
        self.largest = max(self.largest, other.largest)


Attack = Callable[[Target, Tally], Awaitable[None]]


async def silent(target: Target, tally: Tally) -> None:
    """Connect, and say nothing."""
    reader, writer = await asyncio.open_connection(target.host, target.port, local_addr=(target.source, 0))
    tally.note(await reader.read(1000))
    writer.close()


async def slow_head(target: Target, tally: Tally) -> None:
    """One byte of a request per second."""
    reader, writer = await _open(target)
    for byte in f"POST {RESERVE} HTTP/1.1\r\nHost: a\r\nX: ".encode() + b"a" * 100:
        writer.write(bytes([byte]))
        await writer.drain()
        if await _ended(reader, 1.0):
            break
    tally.note(b"")
    writer.close()


async def slow_body(target: Target, tally: Tally) -> None:
    """A large body announced, and nothing more of it."""
    reader, writer = await _open(target)
    writer.write(_head(RESERVE, LARGEST))
    tally.note(await _answer(reader))
    writer.close()


async def small_records(target: Target, tally: Tally) -> None:
    """A body in TLS records of one byte each."""
    reader, writer = await _open(target)
    writer.write(_head(RESERVE, 100_000))
    with suppress(OSError):
        while not (writer.is_closing() or reader.at_eof()):
            for _ in range(20):
                writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0)
    tally.note(await _answer(reader))
    writer.close()


async def slow_health(target: Target, tally: Tally) -> None:
    """Half a request to the health and the metrics port."""
    for port in (target.health, target.metrics):
        reader, writer = await asyncio.open_connection(target.host, port, local_addr=(target.source, 0))
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        tally.note(await _answer(reader))
        writer.close()


def sending(path: str, body: bytes, *headers: str) -> Attack:
    """POST *body* to *path*, again and again."""

    async def attack(target: Target, tally: Tally) -> None:
        reader, writer = await _open(target)
        writer.write(_head(path, len(body), *headers) + body)
        with suppress(OSError):
            await writer.drain()
        tally.note(await _answer(reader))
        writer.close()

    return attack


def review(kind: str, resource: str, *, operation: str = "CREATE", **request: Any) -> bytes:
    group = "ingressdaemonsets.mumoshu.github.io" if kind == "IngressDaemonSet" else ""
    version = "v1alpha1" if group else "v1"
    fields = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": resource},
        "namespace": "forged",
        "name": "forged",
        "operation": operation,
        "userInfo": {"username": "attacker"},
        "dryRun": False,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields | request}
    ).encode()


def ports(count: int) -> bytes:
    """An IngressDaemonSet with *count* health-check ports, all of them wrong."""
    spec = {"template": {"spec": {"containers": []}}, "healthCheckNodePorts": [0] * count}
    return review("IngressDaemonSet", "ingressdaemonsets", object=_ingress(spec))


def terms(count: int) -> bytes:
    """A pod with *count* node selector terms, that waits for a placement."""
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * count}}
    spec = {
        "containers": [{"name": "a", "image": "a"}],
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"operator": "Exists"}],
    }
    metadata = {"name": "a", "namespace": "forged", "annotations": {"LOCAL_REPLICAS": "1"}}
    return review("Pod", "pods", object={"metadata": metadata, "spec": spec})


def empty_lists(size: int) -> bytes:
    """What takes thirty times its *size* when it is parsed."""
    body = ports(0)
    filling = b"[" + b"[]," * ((size - len(body)) // 3) + b"[]]"
    return body.replace(b'"containers": []', b'"containers": ' + filling)


def no_metadata() -> bytes:
    """A template whose metadata is no object."""
    return review(
        "IngressDaemonSet", "ingressdaemonsets", object=_ingress({"template": {"metadata": "x", "spec": 1}})
    )


def deletion() -> bytes:
    """A deletion of a pod that never was, with 500 addresses."""
    addresses = [{"ip": f"10.66.{n // 250}.{n % 250}"} for n in range(500)]
    pod = {
        "metadata": {
            "name": "forged",
            "namespace": "forged",
            "uid": "00000000-dead-beef-0000-000000000000",
            "labels": {"brokerId": "1"},
        },
        "spec": {"nodeName": "a", "containers": []},
        "status": {"phase": "Running", "podIP": "10.66.0.0", "podIPs": addresses},
    }
    return review("Pod", "pods", operation="DELETE", oldObject=pod)


def _ingress(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "ingressdaemonsets.mumoshu.github.io/v1alpha1",
        "kind": "IngressDaemonSet",
        "metadata": {"name": "forged", "namespace": "forged"},
        "spec": spec,
    }


ATTACKS: dict[str, Attack] = {
    "connections that say nothing": silent,
    "a request at one byte per second": slow_head,
    "a body that never comes": slow_body,
    "TLS records of one byte": small_records,
    "slow clients of the health and metrics ports": slow_health,
    "30,000 wrong ports": sending(VALIDATE, ports(30_000)),
    "30,000 node selector terms": sending(PLACE, terms(30_000)),
    "6.5 MB of empty lists": sending(VALIDATE, empty_lists(LARGEST)),
    "300 kB of empty lists": sending(VALIDATE, empty_lists(300_000)),
    "metadata that is no object": sending(DEFAULT, no_metadata()),
    "a forged deletion with 500 addresses": sending(RESERVE, deletion()),
    "an odd SCRIPT_NAME": sending(RESERVE, b"{}", "SCRIPT_NAME: /x"),
    "no JSON": sending(RESERVE, b"\xff" * 1000),
}


async def run(
    attacks: dict[str, Attack], clients: int, target: Target, seconds: float, tallies: dict[str, Tally]
) -> None:
    """Let *clients* per attack go on for *seconds*, all attacks at once; those that do not end are left behind."""
    tasks = [
        asyncio.create_task(_again(attack, replace(target, source=_source(number)), tallies[name]))
        for number, (name, attack) in enumerate(attacks.items())
        for _ in range(clients)
    ]
    await asyncio.wait(tasks, timeout=seconds)


def _source(number: int) -> str:
    """Another address of the loopback for each attack, as if each came from a pod."""
    return f"127.200.0.{number + 1}"


async def _again(attack: Attack, target: Target, tally: Tally) -> None:
    while True:
        try:
            await asyncio.wait_for(attack(target, tally), PATIENCE)
        except TimeoutError:
            tally.results["timed out"] += 1
        except OSError:
            tally.results["refused"] += 1
        await asyncio.sleep(PAUSE)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


CONTEXT = _context()


async def _open(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        target.host, target.port, ssl=CONTEXT, local_addr=(target.source, 0), ssl_shutdown_timeout=1
    )


def _head(path: str, length: int, *headers: str) -> bytes:
    lines = [f"POST {path}?timeout=5s HTTP/1.1", "Host: a", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {length}", "Connection: close", "", ""]).encode()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(-1)
    except OSError:
        return b""


async def _ended(reader: asyncio.StreamReader, seconds: float) -> bool:
    try:
        return not await asyncio.wait_for(reader.read(1), seconds)
    except TimeoutError:
        return False
    except OSError:
        return True
