"""The hostile clients of an attack, in their process, which ends in time whatever becomes of them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dev.hostile.attacks import ATTACKS, Tally, Target, run
from dev.lab.errors import LabError

NICE = 10
"""Of the attackers, who share the cores with the server."""
GROUP = Path("/proc/self/autogroup")
"""Of a session: Linux shares the cores among sessions first, and looks at priorities only within one."""
START, END = 60.0, 5.0
"""Seconds within which attackers start, and within which their counts arrive."""


@contextmanager
def attacking(
    names: Sequence[str], clients: int, target: Target, seconds: float
) -> Iterator[dict[str, Tally]]:
    """They are a session of lower priority: the machine's time is the server's first, as if they were elsewhere.

    After the block, it has what they got, as far as they could say it in time.
    """
    tallies: dict[str, Tally] = {}
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_be_hostile, args=(names, clients, target, seconds, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(START):
            raise LabError("the attackers did not start")
        receiver.recv()
        yield tallies
        if receiver.poll(END):
            tallies.update(receiver.recv())
    except EOFError:
        raise LabError("the attackers ended by themselves") from None
    finally:
        # Some cannot end, such as one that sends to a full socket: they end with their process.
        process.kill()
        process.join()


def _be_hostile(names: Sequence[str], clients: int, target: Target, seconds: float, sender: Any) -> None:
    _stand_back()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    tallies = {name: Tally() for name in names}
    # A thread: the loop may be too busy to come to its end.
    threading.Timer(seconds, lambda: sender.send(tallies)).start()
    sender.send("started")
    asyncio.run(run({name: ATTACKS[name] for name in names}, clients, target, seconds + END, tallies))


def _stand_back() -> None:
    """Leave the cores to all others: in its own session, as one of many that have any."""
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with suppress(OSError):  # a kernel without groups of sessions
        GROUP.write_text(str(NICE))
