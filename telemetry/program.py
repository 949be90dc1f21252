"""Which version of Drawbridge runs, as the image says in its environment, and how signals end it."""

import os
import signal

from runtime import SimpleQueue, threading

VERSION = os.environ.get("DRAWBRIDGE_VERSION") or "0.1.0"
REVISION = os.environ.get("DRAWBRIDGE_REVISION") or "unknown"


def stop_on_signals() -> threading.Event:
    """An event that the first SIGTERM or SIGINT sets.

    A handler runs between any two instructions of the main thread, also while that thread holds the lock of the very
    event: to set it there would wait forever. So the handler only fills a queue, and a thread sets the event.
    """
    stop = threading.Event()
    received: SimpleQueue[int] = SimpleQueue()

    def wait() -> None:
        received.get()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: received.put(number))
    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop
