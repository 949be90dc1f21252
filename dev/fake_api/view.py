"""Objects of a fake API server as a mapping, for worlds in which names are enough to tell them apart."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from dev.fake_api.server import FakeAPI
from kube.client import Resource

Raw = dict[str, Any]


class Objects(MutableMapping[tuple[str, str], Raw]):
    """By plural and name, whatever their namespace; what is set or deleted is so as by another client.

    What is set without a namespace comes into *namespace*.
    """

    def __init__(self, api: FakeAPI, *resources: Resource, namespace: str = "default") -> None:
        self._api, self._namespace = api, namespace
        self._resources = {each.plural: each for each in resources}

    def __getitem__(self, key: tuple[str, str]) -> Raw:
        for each in self._api.list(self._resources[key[0]]):
            if each["metadata"]["name"] == key[1]:
                return each
        raise KeyError(key)

    def __setitem__(self, key: tuple[str, str], raw: Raw) -> None:
        resource = self._resources[key[0]]
        home = {"namespace": self._namespace} if resource.namespaced else {}
        self._api.put(resource, {**raw, "metadata": home | raw["metadata"]})

    def __delitem__(self, key: tuple[str, str]) -> None:
        metadata = self[key]["metadata"]
        self._api.remove(self._resources[key[0]], key[1], metadata.get("namespace", ""))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(
            [
                (plural, each["metadata"]["name"])
                for plural, resource in self._resources.items()
                for each in self._api.list(resource)
            ]
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)
