"""An original as its users have it, and the commands of the page by which they leave it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dev.lab.errors import LabError
from dev.lab.session import Lab
from kube.errors import TooManyRequests
from tests.cluster.leftovers import everything
from tests.cluster.shell import shell
from tests.pages import ROOT, Block, blocks, run

DATA = ROOT / "tests" / "data" / "originals"
SECONDS = 60
NAMES = yaml.safe_load((DATA / "names.yaml").read_text())


class Migration:
    """From *original*, by its page in docs/how-to; *directory* is where its commands are typed."""

    def __init__(self, lab: Lab, original: str, directory: Path) -> None:
        self.lab, self._directory = lab, directory
        page = ROOT / "docs" / "how-to" / f"migrate-from-{original}.md"
        self._steps: Iterator[Block] = (each for each in blocks(page) if each.where == "migration")
        self._before = objects(lab)
        self._of_original: Mapping[str, str] = {}
        (directory / "charts").symlink_to(ROOT / "charts")

    def install(self, original: str, namespace: str, values: Mapping[str, Any]) -> None:
        """A release with the objects of its file, and beside it what its program makes."""
        chart = self._directory / "original"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text(f"{{apiVersion: v2, name: {original}, version: 0.0.1}}")
        shutil.copy(DATA / original / "release.yaml", chart / "templates")
        where = ("--namespace", namespace, "--create-namespace", "--values", "-")
        self.lab.helm("install", original, str(chart), *where, stdin=yaml.safe_dump(dict(values)))
        self.lab.kubectl("apply", "-f", str(DATA / original / "state.yaml"))
        self.is_there()

    def is_there(self) -> None:
        """All that came since the beginning is the original's."""
        self._of_original = {uid: name for uid, name in objects(self.lab).items() if uid not in self._before}

    def step(self, words: str = "", others: str = "") -> str:
        """Type the next commands of the page, *others* instead of *words*, and return what they print."""
        block = next(self._steps)
        assert words in block.text, block
        text = block.text.replace(words, others) if words else block.text
        printed = run(replace(block, text=text), self._directory, shell(self.lab))
        assert block.prints in printed, block
        return printed

    def assert_left(self, *names: str) -> None:
        """All commands were typed, and of the original there is no more than these, with their kinds."""
        assert [str(each) for each in self._steps] == []
        with suppress(LabError):
            self.lab.wait(lambda: self._left() == {*names}, SECONDS, "the garbage collector")
        assert (left := self._left()) == {*names}, left

    def _left(self) -> set[str]:
        there = objects(self.lab)
        return {name for uid, name in self._of_original.items() if uid in there}


def objects(lab: Lab) -> dict[str, str]:
    """All by uid, but what Kubernetes gives to each namespace and each node in its own time."""

    def listed() -> list[dict[str, Any]]:
        # A kind that has just come is not served for a moment.
        with suppress(TooManyRequests):
            return list(everything(lab.client))
        return []

    return {
        each["metadata"]["uid"]: f"{each['kind']} {each['metadata']['name']}"
        for each in lab.wait(listed, SECONDS, "all kinds to be served")
        if "uid" in each["metadata"]
        and each["metadata"].get("namespace") != "kube-node-lease"
        and each["metadata"]["name"] not in ("default", "kube-root-ca.crt")
    }
