"""SIGTERM and SIGINT as an event.

A handler runs between any two instructions of the main thread, also while that thread holds the lock of the very event:
to set it there would wait forever. So the handler only puts a word into a queue, which is safe there, and a thread
sets the event.
"""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals() -> threading.Event:
    """Set by the first signal that asks for the end."""
    stop = threading.Event()
    received: SimpleQueue[int] = SimpleQueue()

    def wait() -> None:
        received.get()
        stop.set()

    for number in SIGNALS:
        signal.signal(number, lambda number, _: received.put(number))
    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
