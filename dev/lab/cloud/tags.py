"""The Tag API: tags are created before use, limited in number, and deleted only when unused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params
from dev.lab.cloud.world import World

BATCH = 10
LONGEST_KEY, LONGEST_VALUE = 127, 255
ALLOWED = re.compile(r"[\w +\-=.:/@()\[\],;><]*")
RESERVED = ("qcs:", "project", "项目")


class Tag(Params, frozen=True):
    tag_key: str
    tag_value: str


class Tags(Params, frozen=True):
    tags: list[Tag]


def create(world: World, params: Tags, _: str) -> dict[str, Any]:
    def make(tag: Tag) -> None:
        check_new(world, tag)
        world.made_tags[tag.tag_key, tag.tag_value] = world.clock()

    return _each(world, params.tags, check_new, make)


def delete(world: World, params: Tags, _: str) -> dict[str, Any]:
    def remove(tag: Tag) -> None:
        _check_unused(world, tag)
        del world.made_tags[tag.tag_key, tag.tag_value]

    return _each(world, params.tags, _check_unused, remove)


def _each(
    world: World, tags: Sequence[Tag], check: Callable[[World, Tag], None], do: Callable[[Tag], object]
) -> dict[str, Any]:
    """All or none, or as far as it goes: as the knob says."""
    if not 1 <= len(tags) <= BATCH:
        raise Fault("LimitExceeded.TagNumPerRequest", f"There are {len(tags)} tags; from 1 to {BATCH}.")
    if world.knobs.tag_batches_atomic:
        for tag in tags:
            check(world, tag)
    faults = []
    for tag in dict.fromkeys(tags):
        try:
            do(tag)
        except Fault as fault:
            faults.append(fault)
    if faults:
        raise faults[0]
    return {}


def check_new(world: World, tag: Tag) -> None:
    """Raises Fault for a pair that cannot be made, because of its text or of existing tags."""
    check_spelling(tag)
    if (tag.tag_key, tag.tag_value) in world.made_tags:
        raise Fault("ResourceInUse.TagDuplicate", f"The tag `{tag.tag_key}:{tag.tag_value}` exists already.")
    keys = {key for key, _ in world.made_tags}
    if tag.tag_key not in keys and len(keys) >= world.knobs.tag_keys:
        raise Fault("LimitExceeded.TagKey", f"There are {len(keys)} tag keys, as many as may be.")
    values = sum(key == tag.tag_key for key, _ in world.made_tags)
    if values >= world.knobs.tag_values:
        raise Fault(
            "LimitExceeded.TagValue", f"The key `{tag.tag_key}` has {values} values, as many as may be."
        )


def check_spelling(tag: Tag) -> None:
    for what, text, longest in (
        ("TagKey", tag.tag_key, LONGEST_KEY),
        ("TagValue", tag.tag_value, LONGEST_VALUE),
    ):
        if not text:
            raise Fault(f"InvalidParameterValue.{what}Empty", f"The {what} is empty.")
        if len(text) > longest:
            code = f"InvalidParameterValue.{what}LengthExceeded"
            raise Fault(code, f"The {what} `{text}` is longer than {longest} characters.")
        if not ALLOWED.fullmatch(text):
            code = f"InvalidParameterValue.{what}CharacterIllegal"
            raise Fault(
                code, f"The {what} `{text}` has characters other than letters, digits, +-=.:/@()[],;><_."
            )
    if tag.tag_key.startswith(RESERVED):
        raise Fault("InvalidParameterValue.ReservedTagKey", f"The TagKey `{tag.tag_key}` is reserved.")


def _check_unused(world: World, tag: Tag) -> None:
    pair = (tag.tag_key, tag.tag_value)
    if pair not in world.made_tags:
        raise Fault("ResourceNotFound.TagNonExist", f"There is no tag `{tag.tag_key}:{tag.tag_value}`.")
    if _is_used(world, pair):
        code = "FailedOperation.TagAttachedResource"
        raise Fault(code, f"The tag `{tag.tag_key}:{tag.tag_value}` is on a resource.")


def _is_used(world: World, pair: tuple[str, str]) -> bool:
    """Now, or as far as the index knows."""
    key, value = pair
    behind = world.clock() - world.knobs.tag_lag_seconds
    return any(
        address.tags.get(key) == value
        for addresses in (world.history.all(), world.history.all(behind))
        for address in addresses
    )


ACTIONS = {"CreateTags": Action(Tags, create, 20), "DeleteTags": Action(Tags, delete, 20)}
