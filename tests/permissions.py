"""What ServiceAccounts may do: by the roles that are bound to them, and by the table that says why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

TABLE = Path(__file__).parent / "data" / "permissions.yaml"
EVERYWHERE, OWN = "", "own"
"""Where a right holds, else in the namespace of that name; *own* is the ServiceAccount's."""
ALWAYS = "always"
"""With whatever feature."""

Raw = Mapping[str, Any]


class Permission(NamedTuple):
    """*name* is empty when it holds for objects of all names; of a subresource, *resource* has it after a slash.

    A URL is a resource that begins with a slash.
    """

    where: str
    group: str
    resource: str
    name: str
    verb: str

    def covers(self, asked: Permission) -> bool:
        """Whether a request, as a right to just that, needs no other."""
        kind = (self.group, self.resource, self.verb) == (asked.group, asked.resource, asked.verb)
        return kind and self.where in (EVERYWHERE, asked.where) and self.name in ("", asked.name)

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}".rstrip(".") + (f" {self.name}" if self.name else "")
        return f"{self.verb} {what} ({self.where or 'everywhere'})"


@dataclass(frozen=True)
class Entry:
    """A row of the table: permissions that come *by* a feature, *why*, and what a stolen token could do with them."""

    account: str
    by: str
    where: str
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    attack: str

    @property
    def permissions(self) -> set[Permission]:
        named = product([self.where], self.groups, self.resources, self.names or ("",), self.verbs)
        return {Permission(*each) for each in named}


def table() -> list[Entry]:
    """All there are, in the order of the table."""
    accounts: dict[str, list[dict[str, Any]]] = yaml.safe_load(TABLE.read_text())
    return [_entry(account, raw) for account, rows in accounts.items() for raw in rows]


def _entry(account: str, raw: dict[str, Any]) -> Entry:
    where = EVERYWHERE if raw["where"] == "everywhere" else raw["where"]
    lists = (tuple(raw.get(name, ())) for name in ("groups", "resources", "names", "verbs"))
    return Entry(account, raw["with"], where, *lists, raw["why"], raw["attack"])


def by_feature(account: str) -> dict[str, set[Permission]]:
    """What the table gives *account* with each feature."""
    rows = [entry for entry in table() if entry.account == account]
    return {by: set().union(*(e.permissions for e in rows if e.by == by)) for by in {row.by for row in rows}}


def granted(documents: Iterable[Raw]) -> dict[str, set[Permission]]:
    """What roles and their bindings give to each ServiceAccount, by ``namespace/name``.

    Of a document that is there in several versions, all count.
    """
    documents = list(documents)
    found: dict[str, set[Permission]] = {}
    for binding in documents:
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            rules = [rule for role in documents if _is_bound(role, binding) for rule in role["rules"] or ()]
            where = binding["metadata"].get("namespace", EVERYWHERE)
            for subject in binding.get("subjects") or ():
                account = f"{subject.get('namespace', '')}/{subject['name']}"
                found.setdefault(account, set()).update(_permissions(rules, where))
    return found


def _is_bound(role: Raw, binding: Raw) -> bool:
    reference, meta = binding["roleRef"], role["metadata"]
    if (role["kind"], meta["name"]) != (reference["kind"], reference["name"]):
        return False
    return role["kind"] == "ClusterRole" or meta["namespace"] == binding["metadata"]["namespace"]


def _permissions(rules: Iterable[Raw], where: str) -> Iterator[Permission]:
    for rule in rules:
        names = rule.get("resourceNames") or [""]
        resources = rule.get("resources") or rule["nonResourceURLs"]
        for each in product(rule.get("apiGroups", [""]), resources, names, rule["verbs"]):
            yield Permission(where, *each)


def seen_from(namespace: str, permissions: Iterable[Permission]) -> set[Permission]:
    """*permissions* of a ServiceAccount of *namespace*, as the table writes them."""
    return {right._replace(where=OWN) if right.where == namespace else right for right in permissions}
