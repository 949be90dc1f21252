"""The commands of the documents work as they stand, on a real control plane."""

import os
from collections.abc import Callable, Iterator, Mapping

import pytest

from controllers.anycast_ip.book import CONFIG_MAPS
from controllers.anycast_ip.claim import SELECTED
from lab import binaries, install
from lab.nodes import join
from lab.session import Lab
from settings.anycast_ip import NEED_LABEL
from tests.cluster.anycast import DRAWBRIDGE, FLEET, Fleet
from tests.pages import PAGES, ROOT, Block, blocks, run

BLOCKS = [block for page in PAGES for block in blocks(page)]
STUCK = "my-node"
"""The name that the documents use for a node that is in trouble."""


def shell(lab: Lab) -> Mapping[str, str]:
    """An operator's environment."""
    programs = binaries.ensure("kubectl", "helm")
    path = ":".join(str(program.parent) for program in programs.values())
    return {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "KUBECONFIG": str(lab.kubeconfig)}


@pytest.fixture(scope="module")
def environment(lab_v3: Lab) -> Iterator[Mapping[str, str]]:
    """Some commands take the registration away: whatever happens, it is back afterwards."""
    yield shell(lab_v3)
    install.upgrade(lab_v3, {})


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.where == "lab"], ids=str)
def test_the_commands_of_the_documents_work_in_their_order(
    environment: Mapping[str, str], block: Block
) -> None:
    assert block.prints in run(block, ROOT, environment)


def nobody_can_serve_a_node(fleet: Fleet) -> None:
    join(fleet.client, STUCK, instance="", labels={NEED_LABEL: "true", FLEET: fleet.token})


def a_node_is_open(fleet: Fleet) -> None:
    fleet.join("opened")
    fleet.await_open("opened")


def the_last_node_has_just_left(fleet: Fleet) -> None:
    fleet.lab.wait(lambda: not claims(fleet), 300, "the claims of earlier nodes to go")
    a_node_is_open(fleet)
    fleet.leave_all()


def claims(fleet: Fleet) -> list[str]:
    found = fleet.client.list(CONFIG_MAPS, DRAWBRIDGE, label_selector=SELECTED).items
    return [each["metadata"]["name"] for each in found]


BEFORE: Mapping[str, Callable[[Fleet], None]] = {
    "break-glass.md": nobody_can_serve_a_node,
    "install.md": a_node_is_open,
    "upgrade.md": the_last_node_has_just_left,
}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.where == "cloud"], ids=str)
def test_the_commands_about_anycast_ips_work(fleet: Fleet, block: Block) -> None:
    BEFORE[block.page.name](fleet)

    assert block.prints in run(block, ROOT, shell(fleet.lab))
