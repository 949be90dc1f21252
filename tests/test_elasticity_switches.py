"""The switches of elasticity: the tables of the original, row by row, and words that are none."""

from __future__ import annotations

from typing import Any

import msgspec

from api.elasticity import BURST, SWITCH
from controllers.elasticity.snapshot import allows, parse
from controllers.elasticity.sources import GlobalSwitch
from kube.types import ConfigMap
from settings import ElasticitySettings
from settings.elasticity import Switch
from tests.elasticity_world import Feed, World
from tests.fakes import FakeRecorder
from tests.tables import table

ON, OFF, UNSET = True, False, None


@table(
    "everywhere, of_pod, in_table, with_opt_out",
    {
        "all on, pod off": (ON, OFF, True, False),
        "all on, pod unset": (ON, UNSET, True, True),
        "all on, pod on": (ON, ON, True, True),
        "all off, pod off": (OFF, OFF, False, False),
        "all off, pod unset": (OFF, UNSET, False, False),
        "all off, pod on": (OFF, ON, True, True),
        "all unset, pod off": (UNSET, OFF, True, False),
        "all unset, pod unset": (UNSET, UNSET, True, True),
        "all unset, pod on": (UNSET, ON, True, True),
    },
)
def test_the_tables_of_the_original(
    everywhere: bool | None, of_pod: bool | None, in_table: bool, with_opt_out: bool
) -> None:
    assert allows(everywhere, of_pod, local_opt_out=False) is in_table
    assert allows(everywhere, of_pod, local_opt_out=True) is with_opt_out


@table(
    "said, meant",
    {
        "true": ("true", True),
        "false": ("false", False),
        "with a capital": ("True", True),
        "with space around it": (" FALSE\n", False),
        "absent": (None, None),
        **{repr(word): (word, "no switch") for word in ("", "yes", "1", "on", "true,false")},
    },
)
def test_another_word_than_true_or_false_counts_as_not_set_and_is_a_problem(
    said: str | None, meant: bool | str | None
) -> None:
    problem = f'AUTO_SCALE_EKS is {said!r}, neither "true" nor "false", and counts as not set'
    assert parse(said) == ((None, problem) if meant == "no switch" else (meant, ""))


def test_the_global_switch_is_what_its_config_map_says_and_what_cannot_be_read_is_reported_once() -> None:
    recorder: Any = FakeRecorder()
    feed = Feed(msgspec.json.Decoder(ConfigMap).decode)
    switch = GlobalSwitch(feed.informer, recorder)
    found, named = [], {"name": "eks-config", "uid": "u"}
    for version, data in enumerate(({"pod.annotations": "{}"}, {SWITCH: "false"}, {SWITCH: "perhaps"})):
        feed.list([{"metadata": {**named, "resourceVersion": str(version + 1)}, "data": data}])
        found += [switch.read(), switch.read()]
    feed.list([])

    assert [*found, switch.read()] == [None, None, False, False, None, None, None]
    assert (recorder.reasons, recorder.uids) == (["BadSwitch"], ["u"])


@table(
    "default, before, after",
    {
        "it is followed": (True, False, None),
        "unset, it is what is configured, which the key outweighs": (False, None, True),
    },
)
def test_a_pod_goes_as_soon_as_the_global_switch_allows_it(
    default: bool, before: bool | None, after: bool | None
) -> None:
    settings = ElasticitySettings(enabled=True, switch=Switch(default=default))
    world = World(settings=settings, switch=before)
    name = world.stuck()
    world.leader.settle()
    assert world.leader.recorder.reasons == ["KeptLocal"]

    world.leader.set_switch(after)
    world.leader.look()
    assert BURST in world.annotations(name)
