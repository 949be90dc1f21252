"""The commands of the documents work as they stand, on a real control plane."""

import os
from collections.abc import Iterator, Mapping

import pytest

from lab import binaries, install
from lab.session import Lab
from tests.pages import PAGES, ROOT, Block, blocks, run

BLOCKS = [block for page in PAGES for block in blocks(page) if block.where == "lab"]


@pytest.fixture(scope="module")
def environment(lab_v3: Lab) -> Iterator[Mapping[str, str]]:
    """An operator's shell. Some commands take the registration away: whatever happens, it is back afterwards."""
    programs = binaries.ensure("kubectl", "helm")
    path = ":".join(str(program.parent) for program in programs.values())
    yield {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "KUBECONFIG": str(lab_v3.kubeconfig)}
    install.upgrade(lab_v3, {})


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_the_commands_of_the_documents_work_in_their_order(
    environment: Mapping[str, str], block: Block
) -> None:
    assert block.prints in run(block, ROOT, environment)
