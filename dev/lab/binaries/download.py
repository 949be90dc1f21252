"""An official release is used only when it is what its publisher's checksum says."""

import hashlib
import re
import tarfile
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue

from dev.lab.binaries import progress
from dev.lab.binaries.errors import ChecksumMismatch, Unavailable
from dev.lab.binaries.table import Program, Release

CHUNK = 1 << 20
STALL_SECONDS = 30.0


class Downloads:
    """The downloads of one run: once a site turned out to be out of reach, none is asked again."""

    def __init__(self, patience: float = 4.0) -> None:
        """*patience*: seconds within which a site must answer the first, small question."""
        self._patience = patience
        self._out_of_reach: str | None = None

    def fetch(self, program: Program, directory: Path) -> None:
        """Put the program into *directory*; raises Unavailable."""
        if program.release is None:
            raise Unavailable(f"download: no release of {program.name} with checksums is published")
        checksum = self._checksum(program.release)
        with progress.step(f"downloading {program.name} {program.version}"):
            _download(program.release, checksum, directory / program.name)

    def _checksum(self, release: Release) -> str:
        if self._out_of_reach:
            raise Unavailable(self._out_of_reach)
        url = release.checksums
        try:
            text = _within(self._patience, lambda: _text(url, self._patience))
        except urllib.error.HTTPError as error:
            error.close()
            raise Unavailable(f"download: {url}: {error}") from error
        except OSError as error:
            self._out_of_reach = f"download: {url} is out of reach: {_reason(error)}"
            raise Unavailable(self._out_of_reach) from error
        return checksum_in(text, release)


def checksum_in(text: str, release: Release) -> str:
    """The SHA-256 of the release in *text*: the digest alone, or lines of digest and file name."""
    file = release.url.rsplit("/", 1)[1]
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-fA-F]{64})(?:\s+\*?(\S+))?", line.strip())
        if match and match[2] in (None, file):
            return match[1].lower()
    raise Unavailable(f"download: {release.checksums} has no SHA-256 for {file}")


def _text(url: str, timeout: float) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as response:  # noqa: S310 - an address of our table
        text: str = response.read().decode()
    return text


def _download(release: Release, checksum: str, target: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=target.parent) as file:
        try:
            digest = _store(release.url, Path(file.name))
        except (OSError, HTTPException) as error:
            raise Unavailable(f"download: {release.url}: {_reason(error)}") from error
        if digest != checksum:
            text = f"download: {release.url} has SHA-256 {digest}, published is {checksum}: not used"
            raise ChecksumMismatch(text)
        target.write_bytes(_content(Path(file.name), release))
    target.chmod(0o755)


def _store(url: str, path: Path) -> str:
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=STALL_SECONDS) as response, path.open("wb") as out:  # noqa: S310
        while chunk := response.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _content(file: Path, release: Release) -> bytes:
    if release.member is None:
        return file.read_bytes()
    try:
        with tarfile.open(file) as archive:
            member = archive.extractfile(release.member)
            if member is None:
                raise KeyError(release.member)
            return member.read()
    except (KeyError, tarfile.TarError) as error:
        raise Unavailable(f"download: {release.url} holds no file {release.member}: {error}") from error


def _within(seconds: float, ask: Callable[[], str]) -> str:
    """What *ask* returns, or TimeoutError: the look-up of a host's name has no time limit."""
    answers: SimpleQueue[str | Exception] = SimpleQueue()
    threading.Thread(target=_answer, args=(ask, answers), daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(ask: Callable[[], str], answers: SimpleQueue[str | Exception]) -> None:
    try:
        answers.put(ask())
    except Exception as error:
        answers.put(error)


def _reason(error: Exception) -> str:
    """What urllib wraps, on one line."""
    return str(error.reason if isinstance(error, urllib.error.URLError) else error)
