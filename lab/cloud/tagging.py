"""Tags are put on addresses and taken off; what fails for one address is said beside the success of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from lab.cloud.action import Action
from lab.cloud.envelope import Fault
from lab.cloud.request import Params
from lab.cloud.resources import region_and_id
from lab.cloud.tags import BATCH, Tag, check_batch, check_new, check_spelling
from lab.cloud.values import Address
from lab.cloud.world import World

PER_RESOURCE = 50

Change = Callable[[Mapping[str, str]], dict[str, str]]


class TagResources(Params, frozen=True):
    resource_list: list[str]
    tags: list[Tag]


class UnTagResources(Params, frozen=True):
    resource_list: list[str]
    tag_keys: list[str]


class Key(Params, frozen=True):
    tag_key: str


class ModifyResourceTags(Params, frozen=True):
    resource: str
    replace_tags: list[Tag] = []
    delete_tags: list[Key] = []


def tag(world: World, params: TagResources, _: str) -> dict[str, Any]:
    check_batch(params.tags)
    _make(world, params.tags)
    more = {each.tag_key: each.tag_value for each in params.tags}
    return _each(world, params.resource_list, lambda tags: {**tags, **more})


def untag(world: World, params: UnTagResources, _: str) -> dict[str, Any]:
    return _each(world, params.resource_list, lambda tags: _without(tags, params.tag_keys))


def modify(world: World, params: ModifyResourceTags, _: str) -> dict[str, Any]:
    if not params.replace_tags and not params.delete_tags:
        raise Fault("MissingParameter", "The request needs `ReplaceTags` or `DeleteTags`.")
    more = {each.tag_key: each.tag_value for each in params.replace_tags}
    gone = [each.tag_key for each in params.delete_tags]
    if more.keys() & set(gone):
        raise Fault("InvalidParameterValue.DeleteTagsParamError", "A key is in ReplaceTags and DeleteTags.")
    address = _address(world, params.resource)
    _make(world, params.replace_tags)
    _set(world, address, {**_without(address.tags, gone), **more})
    return {}


def _make(world: World, tags: Sequence[Tag]) -> None:
    for each in tags:
        check_spelling(each)
    for each in tags:
        if (each.tag_key, each.tag_value) not in world.made_tags:
            check_new(world, each)
            world.made_tags[each.tag_key, each.tag_value] = world.clock()


def _each(world: World, names: Sequence[str], change: Change) -> dict[str, Any]:
    if not 1 <= len(names) <= BATCH:
        raise Fault("LimitExceeded.ResourceNumPerRequest", f"There are {len(names)} resources; 1 to {BATCH}.")
    failed = []
    for name in names:
        try:
            address = _address(world, name)
            _set(world, address, change(address.tags))
        except Fault as fault:
            failed.append({"Resource": name, "Code": fault.code, "Message": fault.message})
    return {"FailedResources": failed}


def _address(world: World, name: str) -> Address:
    region, address_id = region_and_id(name)
    address = world.book.get(address_id)
    if address is None or address.region != region:
        code = "InvalidParameterValue.ResourceIdInvalid"
        raise Fault(code, f"There is no address {address_id} in {region}.")
    return address


def _set(world: World, address: Address, tags: Mapping[str, str]) -> None:
    if len(tags) > PER_RESOURCE:
        code = "LimitExceeded.ResourceAttachedTags"
        raise Fault(code, f"{address.id} would have {len(tags)} tags; at most {PER_RESOURCE}.")
    world.book.put(address.id, replace(address, tags=tags), world.clock())


def _without(tags: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if key not in keys}


ACTIONS = {
    "TagResources": Action(TagResources, tag, 20),
    "UnTagResources": Action(UnTagResources, untag, 20),
    "ModifyResourceTags": Action(ModifyResourceTags, modify, 20),
}
