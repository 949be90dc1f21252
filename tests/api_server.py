"""The fake API server, addressed by paths as a server of misbehaving_server is: for tests of what goes over sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from kube.client import Resource
from tests.fake_api import CALICO_V1, FakeAPI, merged
from tests.fake_api.calls import Target, target_of
from tests.fake_api.front import sending
from tests.fake_api.kinds import BUILT_IN, CALICO_V3, INGRESS_DAEMONSETS
from tests.fake_api.server import OWN
from tests.misbehaving_server import Answer, Asked, refuses

__all__ = ["Api", "merged"]

Raw = dict[str, Any]
Key = tuple[str, str, str]
"""Collection, namespace ("" for none) and name."""
KINDS = (*BUILT_IN, *INGRESS_DAEMONSETS, *CALICO_V3, *CALICO_V1)


class Api:
    """*fault* may answer instead. IPReservations are served in the groups *calico* alone; all other groups are."""

    def __init__(self, *calico: str) -> None:
        self.calico = calico
        self.fake = FakeAPI(*KINDS)
        self.objects = Collections(self)
        self.fault: Callable[[Asked], Answer | None] = lambda asked: None

    def __call__(self, asked: Asked) -> Answer:
        return self.fault(asked) or self.answer(asked)

    def answer(self, asked: Asked) -> Answer:
        if "calico" in asked.path and not any(f"/apis/{group}" in asked.path for group in self.calico):
            return refuses(404, "NotFound", "404 page not found")
        if (target := target_of(asked.path)) and target.namespace:
            self.fake.ensure_namespace(target.namespace)
        return sending(self.fake.handle(asked))

    def put(self, collection: str, raw: Raw) -> None:
        """Place *raw* as another client would."""
        self.fake.put(self.resource(collection), raw)

    def remove(self, collection: str, name: str, namespace: str = "") -> None:
        """Take it away as another client would."""
        self.fake.remove(self.resource(collection), name, namespace)

    def in_collection(self, collection: str) -> list[Raw]:
        return self.fake.list(self.resource(collection))

    def resource(self, collection: str) -> Resource:
        target = target_of(collection)
        assert isinstance(target, Target), collection
        return next(
            each.resource
            for each in KINDS
            if (each.resource.root, each.resource.plural) == (target.root, target.plural)
        )


class Collections(MutableMapping[Key, Raw]):
    """All objects but the namespaces that came with them."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def __getitem__(self, key: Key) -> Raw:
        found = self._api.fake.find(self._api.resource(key[0]), key[2], key[1])
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Key, raw: Raw) -> None:
        self._api.put(key[0], raw)

    def __delitem__(self, key: Key) -> None:
        self._api.remove(key[0], key[2], key[1])

    def __iter__(self) -> Iterator[Key]:
        return iter([key for kind in KINDS for key in self._keys(kind.resource)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _keys(self, resource: Resource) -> Iterator[Key]:
        for each in self._api.fake.list(resource):
            metadata = each["metadata"]
            if metadata["managedFields"][0]["manager"] == OWN:
                continue
            yield resource.path(), metadata.get("namespace", ""), metadata["name"]
