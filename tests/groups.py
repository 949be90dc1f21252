"""A process runs all tests of a group, one after the other, while other processes run other groups and single tests.

The workers of xdist know the groups of their items, by the mark `group`; its scheduler knows names of tests alone.
So the workers leave it a file. (Its own `loadgroup` finds no group under pytest 9.2.)
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

try:
    from xdist.scheduler import LoadScopeScheduling
except ImportError:  # without xdist there is one process, and nothing to distribute
    LoadScopeScheduling = object

FILE = "groups"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write down the group of each test, before xdist reports the collection and its scheduler reads the file."""
    if file := getattr(session.config, "workerinput", {}).get(FILE):
        marks = {item.nodeid: item.get_closest_marker("group") for item in session.items}
        groups = {name: mark.args[0] for name, mark in marks.items() if mark}
        with tempfile.NamedTemporaryFile("w", dir=Path(file).parent, delete=False) as new:
            json.dump(groups, new)
        Path(new.name).replace(file)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    node.workerinput[FILE] = str(_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> object:
    return Groups(config, log)


def _file(config: pytest.Config) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory
    return factory.getbasetemp() / FILE


class Groups(LoadScopeScheduling):
    groups: dict[str, str] = {}

    def schedule(self) -> None:
        if not self.groups:
            self.groups = json.loads(_file(self.config).read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self.groups.get(nodeid, nodeid)

    def _reschedule(self, node) -> None:
        """Hand out no group before its time: the last test of a group waits for more work, but no earlier one."""
        if self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
