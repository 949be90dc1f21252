"""What every program reports: JSON logs, health probes, metrics, and its end by signals.

Health and metrics are served on threads beside the work, with a bound on connections and on silence.
Invariant: nothing here can hold up the work of a program, and no probe is answered 200 by a check that failed.
"""

import signal

from runtime import SimpleQueue, threading


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
