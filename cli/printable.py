"""Text of a cluster as a terminal may get it: anyone who can write an Event or an annotation chooses its characters."""

from __future__ import annotations


def printable(text: str) -> str:
    """*text* with a visible escape, such as `\\x1b`, for all that is no letter, sign or blank.

    So it moves no cursor, ends no line, and turns no text around.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def json_printable(text: str) -> str:
    """The same for JSON, with escapes of JSON; line ends stay, which are never within a value."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each == "\n" or each.isprintable() else _json_escape(each) for each in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[begin : begin + 4]}" for begin in range(0, len(units), 4))
