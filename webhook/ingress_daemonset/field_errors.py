"""Errors of fields, and what Kubernetes accepts as keys and values of labels and annotations."""

import re
from collections.abc import Iterator, Mapping

Problem = tuple[str, str]
"""The path of a field, and what is wrong with it and how to correct it."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def is_key(text: str) -> bool:
    """As ``IsQualifiedName`` of Kubernetes: a name of at most 63 characters, optionally after a domain."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def key_problems(path: str, key: str) -> Iterator[Problem]:
    if not is_key(key):
        wrong = f"{key[:80]!r} is not the key of a label or an annotation"
        yield path, f"{wrong}; write for example example.com/name"


def label_problems(path: str, labels: Mapping[str, str]) -> Iterator[Problem]:
    for key, value in labels.items():
        yield from key_problems(path, key)
        if value and not _NAME.fullmatch(value):
            wrong = f"{value[:80]!r} is not the value of a label"
            yield f"{path}[{key}]", f"{wrong}; use at most 63 letters, digits, '-', '_' and '.'"
