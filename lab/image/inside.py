"""Become one process of an image: its layers, one on the other, are the root, and nothing else of this machine.

Run as a program with the process as JSON in its only argument, in new namespaces that die with it. What
it writes goes into the given layer, or, where there is none, is forgotten. The kernel and the network are
the machine's own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NoReturn

from lab.kubelet.launch import (
    CLONE_NEWNS,
    CLONE_NEWPID,
    MS_BIND,
    MS_PRIVATE,
    MS_REC,
    bind,
    call,
    die_with_parent,
    escaped,
    forbid_writing,
    libc,
    make_point,
    mount,
)


def main(description: str) -> int:
    """Run it to its end; the exit code is its own, or 128 and the signal that ended it."""
    process = json.loads(description)
    die_with_parent()
    call(libc.unshare(CLONE_NEWNS | CLONE_NEWPID), "unshare")
    pid = os.fork()
    if pid == 0:
        become(process)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


def become(process: dict[str, Any]) -> NoReturn:
    try:
        enter(process)
        os.setgroups([])
        os.setgid(process["gid"])
        os.setuid(process["uid"])
        # Only now: the kernel forgets it when the user changes.
        die_with_parent()
        os.chdir(process["directory"])
        # Looked up on the image's PATH, which is not this program's.
        os.environ["PATH"] = process["env"].get("PATH", "")
        os.execvpe(process["argv"][0], process["argv"], process["env"])  # noqa: S606
    except OSError as error:
        print(f"{error.filename or 'the process'}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def enter(process: dict[str, Any]) -> None:
    """Make the root in the empty directory ``process["base"]``, and go into it."""
    base = process["base"]
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", base, kind="tmpfs", options="mode=755")
    root, over = f"{base}/root", process["over"] or f"{base}/over"
    for directory in (root, f"{over}/diff", f"{over}/work"):
        os.makedirs(directory, exist_ok=True)
    lower = ":".join(escaped(layer) for layer in reversed(process["layers"]))
    mount(
        "overlay", root, kind="overlay", options=f"lowerdir={lower},upperdir={over}/diff,workdir={over}/work"
    )
    for directory in (f"{root}/proc", f"{root}/dev"):
        os.makedirs(directory, exist_ok=True)
    mount("proc", f"{root}/proc", kind="proc")
    mount("/dev", f"{root}/dev", flags=MS_BIND | MS_REC)
    for target, (source, read_only) in process["mounts"].items():
        make_point(root + target, source)
        bind(source, root + target, read_only=read_only)
    os.chroot(root)
    os.chdir("/")
    if process["readOnly"]:
        forbid_writing("/")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
