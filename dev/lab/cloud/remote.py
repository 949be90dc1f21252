"""A client of the admin API of an emulator in another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any

import msgspec

from dev.lab.cloud.admin_api import PREFIX
from dev.lab.cloud.values import Call
from dev.lab.errors import LabError
from dev.lab.waiting import stretch

SECONDS = 10.0


@dataclass(frozen=True)
class Remote:
    """Safe to share between threads. Every method raises LabError when the emulator refuses or is gone."""

    endpoint: str
    """Host and port, as the chart's ``cloud.endpoint`` has it."""

    def state(self) -> dict[str, Any]:
        """Its ``addresses``, ``instances``, ``tags``, ``load_balancers``, ``running`` tasks, and ``calls``.

        These are by action and outcome.
        """
        found: dict[str, Any] = msgspec.json.decode(self._ask("GET", "state"))
        return found

    def calls(self) -> list[Call]:
        """Every call that was made of it, the first one first."""
        return msgspec.json.decode(self._ask("GET", "calls"), type=list[Call])

    def knobs(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self._ask("GET", "knobs"))
        return found

    def turn(self, **knobs: Any) -> None:
        """Set these fields of its Knobs, all or none."""
        self._ask("PATCH", "knobs", knobs)

    @contextmanager
    def turned(self, **knobs: Any) -> Iterator[None]:
        """These knobs for the length of a ``with`` block, then as they were."""
        before = self.knobs()
        self.turn(**knobs)
        try:
            yield
        finally:
            self.turn(**{name: before[name] for name in knobs})

    def add_instance(self, instance_id: str, state: str = "RUNNING") -> None:
        """One more, or the same one in another state."""
        self._ask("POST", "instances", {"id": instance_id, "state": state})

    def end_instance(self, instance_id: str) -> None:
        """As its termination does: its elastic address is unbound."""
        self._ask("DELETE", "instances", {"id": instance_id})

    def add_address(self, **how: Any) -> str:
        """Add an address as another user would; *how* are fields of an Address, such as ``instance_id``. Its id."""
        made: dict[str, Any] = msgspec.json.decode(self._ask("POST", "addresses", how))
        return str(made["id"])

    def put_load_balancer(self, load_balancer: str, *targets: dict[str, Any]) -> None:
        """A new one, or one with other targets, as another user would; each has the fields of a Target."""
        self._ask("POST", "load-balancers", {"id": load_balancer, "targets": targets})

    def weights(self, load_balancer: str) -> dict[str, int]:
        """Of its targets, by the instance or the address of each and its port."""
        found = self.state()["load_balancers"][load_balancer]
        return {
            f"{each.get('instance') or each['address']}:{each['port']}": each.get("weight", 10)
            for each in found
        }

    def _ask(self, method: str, what: str, body: object = None) -> bytes:
        connection = HTTPConnection(self.endpoint, timeout=SECONDS * stretch())
        try:
            connection.request(method, f"{PREFIX}{what}", None if body is None else msgspec.json.encode(body))
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            raise LabError(f"the cloud at {self.endpoint} does not answer: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise LabError(f"the cloud refuses {method} {what}: {msgspec.json.decode(content)['error']}")
        return content
