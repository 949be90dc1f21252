"""A write of Drawbridge conflicts with another one: the API server answers it with 409."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kube.client import Resource
from lab.session import Lab
from tests.chaos.hook import PASS, WEBHOOK_CONFIGURATIONS, Answer, Hook, Review, registration, serving

CONFIG_MAPS = Resource("", "v1", "configmaps")
NAME = "conflicts.drawbridge.test"
CONFLICT = Answer(409, "Conflict")
PROBED = {"resources": ["configmaps"], "operations": ["CREATE"]}
PROBE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
SECONDS = 60


class Once:
    """The first write of each kind to come is answered with a conflict; *writes* has the operation that counts."""

    def __init__(self, by: str, writes: Mapping[str, str]) -> None:
        self.by, self.to_come = by, dict(writes)

    def __call__(self, review: Review) -> Answer:
        request = review["request"]
        kind = request["resource"]["resource"]
        if self.to_come.get(kind) != request["operation"] or not self._is_meant(request):
            return PASS
        del self.to_come[kind]
        return CONFLICT

    def _is_meant(self, request: Review) -> bool:
        return bool(request["userInfo"]["username"].endswith(self.by))


@contextmanager
def conflicting(lab: Lab, by: str = "", **writes: str) -> Iterator[None]:
    """CREATE or UPDATE by the plural of a kind: the first of each by Drawbridge conflicts while the block runs.

    *by* is the component of the chart that writes; any, if not given.
    """
    once = Once(by, writes)
    rules = [{"resources": [kind], "operations": [operation]} for kind, operation in writes.items()]
    hook = Hook(once)
    with serving(hook) as (port, ca):
        lab.client.create(WEBHOOK_CONFIGURATIONS, registration(NAME, port, ca, *rules, PROBED))
        try:
            lab.wait(lambda: _is_asked(lab, hook), SECONDS, "the API server to ask the test's webhook")
            yield
            assert once.to_come == {}
        finally:
            lab.client.delete(WEBHOOK_CONFIGURATIONS, NAME)


def _is_asked(lab: Lab, hook: Hook) -> bool:
    lab.client.request("POST", CONFIG_MAPS.path("default") + "?dryRun=All", body=PROBE)
    return hook.asked.is_set()
