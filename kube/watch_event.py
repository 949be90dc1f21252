"""What can be read of any event and of any object, also of one that cannot be decoded further."""

from __future__ import annotations

import msgspec

from kube.types import ObjectMeta, as_number, complete, key_of


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Identity(msgspec.Struct, rename="camel"):
    """As much of ObjectMeta as even an object that we cannot decode should have."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return key_of(ObjectMeta(name=self.name, namespace=self.namespace))

    @property
    def version(self) -> int:
        return as_number(self.resource_version)


class Identified(msgspec.Struct):
    metadata: Identity


complete(Event, Identified)


def identity_of(item: msgspec.Raw) -> Identity:
    """An empty one when not even that can be read."""
    try:
        return msgspec.json.decode(item, type=Identified).metadata
    except msgspec.MsgspecError:
        return Identity()
