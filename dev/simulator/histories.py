"""Directed histories: what once went wrong, in the world in which seeds play, under a sentence as its name.

A history acts between waits; all else is as in a scenario: the judge asks every invariant at every instant, then comes
the rest, then a fresh start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dev.simulator import objects
from dev.simulator.scenario import Scenario, values_of
from dev.simulator.world import World
from kube.resources import CONFIG_MAPS, NODES
from settings.anycast_ip import NEED_LABEL

Raw = dict[str, Any]
Script = Callable[[World], Iterator[float]]
"""Acts, and yields the seconds until it acts again."""
BREATH = 30.0
"""Seconds from the last act of a history until the world is left alone."""
REST = 600.0

HISTORIES: dict[str, Scenario] = {}


def history(
    *features: str, nodes: int = 4, lasts: float = 300.0, values: Raw | None = None
) -> Callable[[Script], Script]:
    """*lasts* is for how many seconds the script acts at most."""

    def keep(script: Script) -> Script:
        assert script.__doc__ is not None
        name = script.__doc__.strip().removesuffix(".")
        HISTORIES[name] = Scenario(
            0,
            features,
            values_of(features, values or {}),
            nodes,
            [0.0] * 4,
            (),
            lasts + BREATH,
            REST,
            script,
            name,
        )
        return script

    return keep


def need_addresses(world: World) -> None:
    for node in world.api.list(NODES):
        world.patch(NODES, node["metadata"]["name"], {"metadata": {"labels": {NEED_LABEL: "true"}}})


def register_again(world: World, name: str) -> None:
    """The machine of a Node comes under a second name, too."""
    number = int(name.rpartition("-")[2])
    again = objects.node(f"{name}-again", number, {NEED_LABEL: "true"}, instance=f"ins-{number:08d}")
    world.kubectl_create(NODES, again)


def leaves(world: World, name: str) -> None:
    world.kubectl_delete(NODES, world.api.get(NODES, name))


@history("anycast_ip", nodes=2)
def second_node(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node leaves."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    leaves(world, "node-1-again")


@history("anycast_ip", nodes=2)
def first_node_leaves(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the first Node leaves."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    leaves(world, "node-1")


@history("anycast_ip", nodes=3)
def wrong_keys(world: World) -> Iterator[float]:
    """Keys of another account for a minute while a node leaves do not leak its address."""
    need_addresses(world)
    yield 60.0
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 60.0)
    leaves(world, "node-2")
    yield 90.0


@history("anycast_ip", nodes=3)
def wrong_keys_while_releasing(world: World) -> Iterator[float]:
    """Keys of another account for a minute while a release is under way do not leak its address."""
    need_addresses(world)
    yield 60.0
    leaves(world, "node-2")
    while not any("releasing" in str(each.get("data")) for each in world.api.peek(CONFIG_MAPS)):
        yield 0.005
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 60.0)
    yield 90.0


@history("anycast_ip", nodes=2, values={"anycastIP": {"releaseOnLabelRemoval": True}})
def second_node_unlabelled(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node loses its label."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    world.patch(NODES, "node-1-again", {"metadata": {"labels": {NEED_LABEL: None}}})
    yield 60.0


@history("anycast_ip", nodes=2)
def second_node_corrected(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node names another one."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    other = {objects.INSTANCE_LABEL: "ins-00000099"}
    world.patch(NODES, "node-1-again", {"metadata": {"labels": other}})
    yield 60.0
