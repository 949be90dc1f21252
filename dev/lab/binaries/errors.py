"""A source without the program says why, and only when all sources have is it an error."""

from dev.lab.errors import LabError


class BinaryError(LabError):
    """A program of the lab could not be had from anywhere."""


class Unavailable(Exception):
    """One source cannot give the program; the text starts with the source's name."""


class ChecksumMismatch(Unavailable):
    """A download is not what its publisher says it is."""
