"""Carry TCP connections from one address to another, byte for byte, with back-pressure and half-close."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Collection, Mapping

BACKLOG = 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER on with no time: closing resets

Address = tuple[str, int]

log = logging.getLogger(__name__)


class Side(asyncio.Protocol):
    """One end of a relayed connection; it sends what its peer receives."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Side | None = None
        self.heard_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def join(self, peer: Side) -> None:
        self.peer, peer.peer = peer, self

    def data_received(self, data: bytes) -> None:
        if self.peer and self.peer.transport:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        if self.peer and self.peer.transport:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer and self.peer.transport:
            self.peer.transport.resume_reading()

    def eof_received(self) -> bool:
        """Say so to the peer, and stay open for what it has still to say."""
        self.heard_all = True
        if self.peer is None or self.peer.transport is None or self.peer.heard_all:
            return False
        self.peer.transport.write_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        peer = self.peer
        if peer and peer.transport:
            if error is None:
                peer.transport.close()
            else:
                reset(peer.transport)


def reset(transport: asyncio.Transport) -> None:
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    transport.abort()


class Door(Side):
    """The accepting side; it reads only once the target is connected."""

    def __init__(self, target: Address | None, opened: set[Door]) -> None:
        super().__init__()
        self._target = target
        self._opened = opened
        self._calling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        if self._target is None:
            reset(self.transport)
            return
        self._opened.add(self)
        self.transport.pause_reading()
        self._calling = asyncio.get_running_loop().create_task(self._call(self.transport, *self._target))

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._opened.discard(self)

    async def _call(self, transport: asyncio.Transport, host: str, port: int) -> None:
        try:
            callee, side = await asyncio.get_running_loop().create_connection(Side, host, port)
        except OSError:
            if self.transport:
                reset(transport)
            return
        if self.transport is None:
            reset(callee)
            return
        self.join(side)
        transport.resume_reading()


class Relay:
    """Listens where its table says and there is somewhere to lead; carried connections outlive changes."""

    def __init__(self) -> None:
        self._servers: dict[Address, asyncio.Server] = {}
        self._targets: Mapping[Address, tuple[Address, ...]] = {}
        self._turns = itertools.count()
        self._opened: set[Door] = set()

    async def follow(self, table: Mapping[Address, tuple[Address, ...]]) -> Collection[Address]:
        """Serve this table from now on; the addresses where it could not listen are returned."""
        self._targets = {door: targets for door, targets in table.items() if targets}
        for door in self._servers.keys() - self._targets.keys():
            self._servers.pop(door).close()
        return [door for door in self._targets.keys() - self._servers.keys() if not await self._listen(door)]

    async def _listen(self, door: Address) -> bool:
        try:
            self._servers[door] = await asyncio.get_running_loop().create_server(
                lambda: Door(self._next(door), self._opened), *door, backlog=BACKLOG
            )
        except OSError as error:
            log.warning("cannot listen", extra={"address": door, "error": str(error)})
            return False
        return True

    def _next(self, door: Address) -> Address | None:
        targets = self._targets.get(door, ())
        return targets[next(self._turns) % len(targets)] if targets else None

    def close(self) -> None:
        """Listen no more, and reset what is carried."""
        for server in self._servers.values():
            server.close()
        for door in list(self._opened):
            if door.transport:
                reset(door.transport)
            if door.peer and door.peer.transport:
                reset(door.peer.transport)
