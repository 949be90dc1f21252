"""`python -m dev.lab.style [path ...]`: find words that the project avoids, and terms that are spelt otherwise."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.lab.repository import PRODUCT, ROOT

SCOPE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs",
    "charts",
    "features.py",
    "wsgi.py",
    "gunicorn.conf.py",
    *PRODUCT,
)
"""What is checked when no path is given."""

WORDS = {
    "whoever": "name the actor: the user, a client, the controller",
    "whom": "name the actor; 'which pod', 'for each'",
    "nobody": "no one, no client, 'not used'",
    "somebody": "someone, a user, another client",
    "anew": "again",
    "in vain": "without effect; 'fails'",
    "(?:is|are|was|were|be|been) let": "is allowed, is admitted, may",
    "told": "recorded, reported, informed",
    "tells": "reports, shows, says",
    "teller": "reporter, event recorder",
    "notices": "detects, sees",
    "hears": "receives",
    "look(?:s|ed|ing)? after": "manage",
    "rid of": "remove, uninstall",
    "of (?:its|their|his|your|our|my) own": "its own ..., separate, dedicated",
    "what there (?:is|are|was|were)": "name the thing; 'existing ...'",
    "at home": "local, on local nodes",
    "(?:brought|bring|brings|bringing|run|runs|come|comes|came|go|goes|back) home": "local, back to local nodes",
    "another(?:'s)? hand": "another client",
    "strangers?": "unmanaged object, other client",
    "forebears?": "predecessor",
    "for ever": "forever, indefinitely",
    "registrations?": "webhook configuration",
    "rights": "permissions, RBAC",
    "shall": "must, is to",
    "hence": "so, therefore",
    "thus": "so",
    "upon": "on",
}
"""Patterns for whole words, in prose and code alike, each with what to write instead."""

NAMES = {
    "books?": "cache, store, indexer",
    "scenes?": "snapshot",
    "accountants?": "reconciler",
    "sights?": "state, snapshot",
    "besides?": "what the thing is: child_resources, health",
    "lanes?": "rate limiter",
    "keepers?": "reconciler",
    "forebears?": "predecessor",
    "foreign(?!_pre_chain)": "unmanaged",
    "tell": "record, report",
    "marks": "annotations",
    "hand_out": "submit",
}
"""Words that do not occur in names of the code."""

TERMS = {
    "api server": "API server",
    "config ?maps?": "ConfigMap",
    "daemon ?sets?": "DaemonSet",
    "stateful ?sets?": "StatefulSet",
    "replica ?sets?": "ReplicaSet",
    "[Ii]ngress (?:daemon ?sets?|DaemonSets?)": "IngressDaemonSet",
    "ip ?reservation objects?": "IPReservation",
    "pod ?disruption ?budgets?": "PodDisruptionBudget",
    "cluster ?roles?": "ClusterRole",
    "service ?accounts?": "ServiceAccount",
    "super-?nodes?": "super node",
    "health-?checkers?": "health checker",
    "web[- ]hooks?": "webhook",
    "work-queues?|workqueues?": "work queue",
    "cert manager": "cert-manager",
    "kubernetes": "Kubernetes",
    "prometheus": "Prometheus",
    "calico": "Calico",
    "ca ?bundle": "caBundle, CA bundle",
}
"""Spellings to avoid in prose, each with the one spelling of the term; names in code are not concerned."""


@dataclass(frozen=True)
class Finding:
    path: Path
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: '{self.found}': write {self.instead}"


BETWEEN = r'(?:[\s#_"]|//)+'
"""What may separate the words of a phrase: also the end of a line in a comment, and of a part of a text."""


def _compiled(rules: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    """Words end where letters end, or a capital begins: `is_told` and `ToldAt` are found, `untold` is not."""
    begin, end = "(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))", "(?![a-z]|(?<=[A-Z])[A-Z])"
    return [
        (re.compile(f"{begin}(?i:{pattern.replace(' ', BETWEEN)}){end}"), instead)
        for pattern, instead in rules.items()
    ]


ANYWHERE, IN_NAMES = _compiled(WORDS), _compiled(NAMES)
IN_PROSE = [
    (re.compile(rf"(?<![\w./:@=-])(?:{pattern})(?![\w/:@=-]|\.\w)"), instead)
    for pattern, instead in TERMS.items()
]


def check(path: Path, text: str) -> list[Finding]:
    """What is wrong in *text*, which is or would be the content of *path*."""
    kept, names, prose = PARTS[path.suffix](text)
    findings = [
        Finding(path, part.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), instead)
        for part, rules in ((kept, ANYWHERE), (names, IN_NAMES), (prose, IN_PROSE))
        for pattern, instead in rules
        for found in pattern.finditer(part)
    ]
    return sorted(findings, key=lambda each: each.line)


Parts = tuple[str, str, str]
"""A text with all but its words, its names and its prose blanked, so that lines keep their numbers."""


def _python(text: str) -> Parts:
    names, prose = [], []
    before = tokenize.ENCODING
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        starts = before in (tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type == tokenize.NAME:
            names.append(token)
        elif token.type == tokenize.COMMENT or (token.type == tokenize.STRING and starts):
            prose.append(token)
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    return text, _placed(names), _without_code(_placed(prose))


def _placed(tokens: Sequence[tokenize.TokenInfo]) -> str:
    """The texts of *tokens* at their lines."""
    text, line = "", 1
    for token in tokens:
        text += "\n" * (token.start[0] - line) + " " + token.string
        line = token.end[0]
    return text


FENCES = re.compile(r"^ *```.*?^ *```|<!--.*?-->", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1|\]\([^)]*\)", re.DOTALL)


def _without_code(text: str) -> str:
    for pattern in (FENCES, CODE):
        text = pattern.sub(lambda found: "-" + "\n" * found[0].count("\n"), text)
    return text


def _markdown(text: str) -> Parts:
    prose = _without_code(text)
    return prose, "", prose


def _chart(text: str) -> Parts:
    """Comments are prose; everything else may be shown to users."""
    comments = re.sub(r"^(?: *[^#\s].*)$", "", text, flags=re.MULTILINE)
    return text, "", _without_code(comments)


def _data(text: str) -> Parts:
    return text, "", ""


PARTS: dict[str, Callable[[str], Parts]] = {
    ".py": _python,
    ".md": _markdown,
    ".yaml": _chart,
    ".tpl": _data,
    ".txt": _data,
    ".json": _data,
}


def files(path: Path) -> Iterator[Path]:
    """Those under *path*, or itself, that have words."""
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    yield from (each for each in inside if each.suffix in PARTS and "__pycache__" not in each.parts)


def in_scope() -> Iterator[Path]:
    for name in SCOPE:
        yield from files(ROOT / name)


def main(arguments: Sequence[str]) -> int:
    named = [path for argument in arguments for path in files(Path(argument).resolve())]
    findings = [each for path in named or in_scope() for each in check(path, path.read_text())]
    print("\n".join(map(str, findings)) or "style: nothing to change")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
