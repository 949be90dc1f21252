"""The head of a response, sent together with its body, and without a turn: its client may not read it."""

from typing import Protocol

from kube.waiting import give_up


class Socket(Protocol):
    def sendall(self, data: bytes, /) -> None: ...


class Joined:
    """The socket of a response that has a body: gunicorn sends the head first, in a separate TLS record.

    Each is a system call, for which the thread gives up the interpreter, and wakes the client.
    """

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._head: bytes | None = None

    def sendall(self, data: bytes) -> None:
        if self._head is None:
            self._head = data
        else:
            give_up()
            self._sock.sendall(self._head + data)
            self._head = b""
