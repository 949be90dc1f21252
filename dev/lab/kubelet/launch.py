"""Become one container: a private view of this machine's files, in namespaces that die with the kubelet.

Run as a program with the container as JSON on standard input. The container's root is an overlay of the
machine's own file systems, so it may write anywhere and the machine stays as it is; volumes are bound into
it. The first argument is the descriptor of a pipe on which the kubelet reads the container's pid, then what
went wrong in making it, if anything did, and that is closed as the container's own program begins. The
second is the kubelet's pid.
"""

import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x4000000, 0x10000000, 0x20000000
PR_SET_PDEATHSIG = 1
KERNEL = ("/proc", "/sys", "/dev")

libc = ctypes.CDLL(None, use_errno=True)


def main(report: int, parent: int) -> int:
    """Run the container to its end; the exit code is its own, or 128 and the signal that ended it."""
    container = json.load(sys.stdin)
    os.set_inheritable(report, False)
    die_with_parent()
    if os.getppid() != parent:
        return 128 + signal.SIGKILL
    try:
        unshare()
        pid = fork_into(container, report)
    except OSError as error:
        os.write(report, f"error {describe(error)}\n".encode())
        return 1
    os.write(report, f"pid {pid}\n".encode())
    os.close(report)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


def die_with_parent() -> None:
    call(libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def unshare() -> None:
    """Enter new namespaces: as root as it is, otherwise as the root of a new user namespace."""
    spaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        call(libc.unshare(spaces), "unshare")
        return
    call(libc.unshare(spaces | CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def fork_into(container: dict[str, Any], report: int) -> int:
    """The pid of a child that becomes the container; it ends if this process ends first, however early."""
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        die_with_parent()
        if not os.read(wait, 1):
            os._exit(128 + signal.SIGKILL)
        become(container, report)
    os.close(wait)
    os.write(go, b"!")
    os.close(go)
    return pid


def become(container: dict[str, Any], report: int) -> NoReturn:
    try:
        call(libc.sethostname(*encoded(container["hostname"])), "sethostname")
        enter_root(container)
        os.chdir(container["workingDir"])
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.execvpe(container["argv"][0], container["argv"], container["env"])  # noqa: S606
    except OSError as error:
        os.write(report, f"error {describe(error)}\n".encode())
    os._exit(128)


def encoded(name: str) -> tuple[bytes, int]:
    return name.encode(), len(name.encode())


def enter_root(container: dict[str, Any]) -> None:
    """Make the container's file system below ``container["base"]``, an empty directory, and go into it."""
    base = container["base"]
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mounted = machine_mounts()
    mount("tmpfs", base, kind="tmpfs", options="mode=755")
    root = f"{base}/root"
    os.mkdir(root)
    mount("tmpfs", root, kind="tmpfs", options="mode=755")
    layers(base, root, mounted)
    os.mkdir(f"{root}/.volumes")
    for number, volume in enumerate(container["mounts"]):
        stash(volume, f"{root}/.volumes/{number}")
    os.chroot(root)
    os.chdir("/")
    for number, volume in enumerate(container["mounts"]):
        place(f"/.volumes/{number}", volume)
    os.rmdir("/.volumes")
    if container["readOnlyRoot"]:
        volumes = {os.path.realpath(volume["target"]) for volume in container["mounts"]}
        for path in uncovered({"/", *machine_mounts()} - volumes, volumes):
            forbid_writing(path)


def uncovered(paths: set[str], volumes: set[str]) -> set[str]:
    """Those of *paths* that no volume hides, where this machine has a file system below the place of one."""
    return {path for path in paths if not any(path.startswith(f"{volume}/") for volume in volumes)}


def layers(base: str, root: str, mounted: list[str]) -> None:
    """Show this machine's directories below ``root``, each with a layer of memory on it."""
    numbers = itertools.count()

    def show(path: str) -> None:
        target = root + path
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
        elif path in KERNEL:
            os.mkdir(target)
        elif any(each.startswith(f"{path.rstrip('/')}/") for each in mounted):
            # A layer does not reach into other file systems, and a user namespace allows none above them.
            os.makedirs(target, exist_ok=True)
            shutil.copymode(path, target)
            for name in os.listdir(path):
                best_effort(show, os.path.join(path, name))
        else:
            layer_or_bind(f"{base}/{next(numbers)}", path, target)

    show("/")
    mount("proc", f"{root}/proc", kind="proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path in ("/sys", "/dev"):
        mount(path, f"{root}{path}", flags=MS_BIND | MS_REC)


def machine_mounts() -> list[str]:
    """Where file systems of this machine are mounted, the root and the kernel's own left out."""
    with open("/proc/self/mounts", "rb") as file:
        fields = [line.split()[1] for line in file]
    paths = [os.fsdecode(field.decode("unicode_escape").encode("latin-1")) for field in fields]
    return [path for path in paths if path != "/" and not path.startswith(KERNEL)]


def best_effort(show: Callable[[str], None], path: str) -> None:
    """What this machine does not let us show is not seen in the container."""
    with contextlib.suppress(OSError):
        show(path)


def layer_or_bind(layer: str, path: str, target: str) -> None:
    """A layer on a directory; files, and directories that can bear no layer, for reading only."""
    if os.path.isdir(path):
        os.mkdir(target)
        with contextlib.suppress(OSError):
            return overlay(layer, path, target)
    make_point(target, path)
    return bind(path, target, read_only=True)


def overlay(layer: str, lower: str, target: str) -> None:
    os.makedirs(f"{layer}/upper")
    os.makedirs(f"{layer}/work")
    shutil.copymode(lower, f"{layer}/upper")
    options = f"lowerdir={escaped(lower)},upperdir={escaped(layer)}/upper,workdir={escaped(layer)}/work"
    mount("overlay", target, kind="overlay", options=options)


def escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def stash(volume: dict[str, Any], path: str) -> None:
    """Bind the volume where it can still be reached once the root is changed."""
    make_point(path, volume["source"])
    bind(volume["source"], path, read_only=volume["readOnly"])


def place(stashed: str, volume: dict[str, Any]) -> None:
    """Move a volume to its place: only inside the new root do links such as /var/run lead rightly."""
    make_point(volume["target"], stashed)
    mount(stashed, volume["target"], flags=MS_MOVE)
    (os.rmdir if os.path.isdir(stashed) else os.unlink)(stashed)


def make_point(path: str, like: str) -> None:
    if os.path.exists(path):
        return
    if os.path.isdir(like):
        os.makedirs(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def bind(source: str, target: str, *, read_only: bool) -> None:
    mount(source, target, flags=MS_BIND)
    if read_only:
        forbid_writing(target)


def forbid_writing(target: str) -> None:
    # In a user namespace the kernel refuses to allow again what the machine forbids on a file system (the
    # numbers of ST_ and MS_ flags are the same).
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def mount(source: str, target: str, *, kind: str = "none", flags: int = 0, options: str = "") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags))
    call(libc.mount(*arguments, os.fsencode(options) or None), f"mount {kind} at {target}")


def call(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def describe(error: OSError) -> str:
    return f"{error.filename or 'container'}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
