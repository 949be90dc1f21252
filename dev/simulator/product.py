"""The product's processes: what the chart's Deployments run, and what a kubelet does when one of them ends.

All code between is the product's own: a controllers process is ``controllers.__main__`` from its manager on, a webhook
server is the Flask application of ``wsgi``.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import features
from controllers.informers import StaleInformer
from controllers.manager import manage
from dev.fake_api import FakeAPI
from dev.fake_api.calls import Reply, Request, refusal
from dev.fake_api.front import Connection
from dev.simulator.admission import Away
from dev.simulator.core.kernel import Kernel, Process
from dev.simulator.reception import Reception
from kube.client import Client
from kube.event_recorder import EventRecorder
from kube.leader_election import LeadershipLost, StillWorking
from runtime import threading
from settings import Settings, parse
from webhook import replica as servers
from webhook.app import create_app

STOP_WITHIN = 30.0
"""Seconds from SIGTERM to SIGKILL."""
RESTART = 2.0
"""Seconds from the end of a process to its next one."""
USER = "drawbridge-controllers"
SERVER = "drawbridge-webhook"
RESERVATIONS = "/ipreservations"
NEVER = 0.0, 0.0


@dataclass
class Configuration:
    """The mounted file: each process sees a change when its kubelet has synced it."""

    current: Settings = field(default_factory=Settings)

    def mount(self, text: str) -> None:
        """SettingsError for one that is refused: what was mounted before stays."""
        self.current = parse(text)


@dataclass(eq=False)
class Replica:
    """One pod of ours; *process* is its container of the moment."""

    name: str
    skew: float
    process: Process
    configuration: Configuration
    stop: Any = None
    lives: int = 0
    ended: list[tuple[float, str]] = field(default_factory=list)
    app: Any = None
    is_leaving: bool = False
    """Its kubelet does not start it again."""

    @property
    def settings(self) -> Settings:
        return self.configuration.current


class Network:
    """Requests of our processes to the API server: they take time, and may be lost on either way."""

    def __init__(self, api: FakeAPI, kernel: Kernel, dice: Random) -> None:
        self._api, self._kernel, self._dice = api, kernel, dice
        self.on_write: Callable[[Process, Request], None] = lambda *_: None
        """Called with the process of each write of the controllers that arrives."""
        self.on_lease: Callable[[Process, str], None] = lambda *_: None
        """Called with the process that wrote the Lease, and the holder that it names."""
        self.on_reserving: Callable[[Process, int], None] = lambda *_: None
        """Called with the process of each write of reservations that begins, and how many it then waits for."""
        self._reserving: Counter[Process] = Counter()
        self._cut: dict[str, float] = {}
        self._troubles: dict[str, tuple[float, float]] = {}
        """By kind: until when, and on which share of the requests, or for how many seconds at most."""
        self._hanging, self._hangs_for = ("", "", 0.0), math.inf
        self._late = NEVER
        self._restarts = 0
        self._last_writes: dict[str, int] = {}
        self.on_last_write: Callable[[Process], None] = lambda _: None
        """Called with the process that made it: nothing that it would do next is done."""

    def cut(self, replica: str, until: float) -> None:
        """What it asks hangs until the client gives up."""
        self._cut[replica] = until

    def slow(self, until: float, most: float) -> None:
        self._troubles["slow"] = until, most

    def hang(self, method: str, path: str, until: float, seconds: float = math.inf) -> None:
        """Requests of ours with such a method and path take so much longer, or have no answer."""
        self._hanging, self._hangs_for = (method, path, until), seconds

    def lose(self, until: float, share: float) -> None:
        """So many requests of ours have no answer: half of them never arrive, half are carried out."""
        self._troubles["lost"] = until, share

    def be_busy(self, until: float, share: float) -> None:
        """So many requests of ours are answered 429."""
        self._troubles["busy"] = until, share

    def delay(self, until: float, share: float, latest: float, earliest: float = 0.0) -> None:
        """So many writes of ours are carried out so long after their client gave up, or died."""
        self._troubles["late"], self._late = (until, share), (earliest, latest)

    def restart(self) -> None:
        """Of the API servers, as for a restore of etcd: what is on its way to them is lost."""
        self._restarts += 1

    def end_after(self, replica: str, writes: int) -> None:
        """Its process dies right after so many of its writes, to the API server or to the cloud, were carried out."""
        self._last_writes[replica] = writes

    def written(self, process: Process) -> None:
        """A write of this process was carried out."""
        replica = process.name.partition("#")[0]
        if replica in self._last_writes:
            self._last_writes[replica] -= 1
            if self._last_writes[replica] <= 0:
                del self._last_writes[replica]
                self.on_last_write(process)

    @property
    def is_calm(self) -> bool:
        ends = [self._hanging[2], *self._cut.values(), *(until for until, _ in self._troubles.values())]
        return self._kernel.now > max(ends)

    def calm(self) -> None:
        self._cut.clear()
        self._hanging = "", "", 0.0
        self._troubles.clear()
        self._last_writes.clear()

    def connection(self, manager: str, replica: str) -> Any:
        def handle(call: Request, timeout: float) -> Reply:
            if not (manager == SERVER and call.method == "POST" and RESERVATIONS in call.path):
                return carried_out(call, timeout)
            process = self._kernel.process
            self._reserving[process] += 1
            self.on_reserving(process, self._reserving[process])
            try:
                return carried_out(call, timeout)
            finally:
                self._reserving[process] -= 1

        def carried_out(call: Request, timeout: float) -> Reply:
            kernel = self._kernel
            began = kernel.now
            kernel.sleep(self._latency())
            trouble = self._trouble(replica, call)
            if trouble == "hangs":
                left = timeout - (kernel.now - began)
                kernel.sleep(max(0.0, min(self._hangs_for, left)))
                if self._hangs_for >= left:
                    raise TimeoutError("timed out")
            if trouble == "late":
                after, restarts = timeout + self._dice.uniform(*self._late), self._restarts

                def arrive() -> None:
                    if restarts == self._restarts:
                        self._api.handle(call)

                kernel.spawn(arrive, "late write", kernel.system, after=after)
                kernel.sleep(timeout)
                raise TimeoutError("timed out")
            if trouble == "lost":
                raise ConnectionResetError("the connection was reset")
            if trouble == "busy":
                return refusal(429, "TooManyRequests", "too many requests", retry_after=1)
            is_write = manager == USER and call.method != "GET"
            if is_write:
                self.on_write(kernel.process, call)
            reply = self._api.handle(call)
            if call.method != "GET" and "/leases" not in call.path:
                self.written(kernel.process)
            if is_write and "/leases" in call.path and reply.status < 300:
                self.on_lease(kernel.process, (call.body.get("spec") or {}).get("holderIdentity") or "")
            kernel.sleep(self._latency())
            if trouble == "unheard":
                raise ConnectionResetError("the connection was reset")
            if kernel.now - began > timeout:
                raise TimeoutError("timed out")
            return reply

        return Connection(handle, manager)

    def _latency(self) -> float:
        until, most = self._troubles.get("slow", NEVER)
        slowest = most if self._kernel.now < until else 0.02
        return 0.001 + self._dice.random() * slowest

    def _trouble(self, replica: str, call: Request) -> str:
        now = self._kernel.now
        method, path, until = self._hanging
        if now < until and method == call.method and path in call.path:
            return "hangs"
        if now < self._cut.get(replica, 0.0):
            return "hangs"
        for kind in ("busy", "late", "lost"):
            until, share = self._troubles.get(kind, NEVER)
            if kind == "late" and call.method == "GET":
                continue
            if now < until and self._dice.random() < share:
                return self._dice.choice(("lost", "unheard")) if kind == "lost" else kind
        return ""


class Product:
    def __init__(self, kernel: Kernel, api: FakeAPI, network: Network) -> None:
        self._kernel, self._api, self._network = kernel, api, network
        network.on_last_write = self._die
        self.controllers: list[Replica] = []
        self.servers: list[Replica] = []

    # Controllers.

    def start_controllers(self, name: str, configuration: Configuration, skew: float = 0.0) -> Replica:
        replica = Replica(name, skew, Process(name, skew), configuration)
        self.controllers.append(replica)
        self._kernel.spawn(lambda: self._keep_running(replica), f"kubelet of {name}", self._kernel.system)
        return replica

    def _keep_running(self, replica: Replica) -> None:
        while not replica.is_leaving:
            replica.lives += 1
            replica.process = process = Process(f"{replica.name}#{replica.lives}", replica.skew)
            replica.stop = threading.Event()
            ended = threading.Event()
            self._kernel.spawn(lambda: self._live(replica, ended), "main", process)  # noqa: B023
            while not ended.wait(1.0) and not process.dead:
                pass
            process.dead = True
            self._kernel.sleep(RESTART)

    def _live(self, replica: Replica, ended: Any) -> None:
        os.environ.update(POD_NAME=replica.name, POD_NAMESPACE="drawbridge", POD_UID=f"uid-{replica.name}")
        client = Client(self._network.connection(USER, replica.name))
        recorder = EventRecorder(client, "drawbridge-controllers")
        why = "stopped"
        try:
            file: Any = replica.configuration
            controllers = features.controllers(lambda: file.current)
            manage(controllers, client, recorder, replica.settings.leader_election, replica.stop)
        except (LeadershipLost, StaleInformer, StillWorking) as error:
            why = str(error)
        finally:
            replica.ended.append((self._kernel.now, why))
            ended.set()

    def kill(self, replica: Replica) -> None:
        """SIGKILL, in the middle of whatever it is at; the kubelet starts it again."""
        replica.ended.append((self._kernel.now, "killed"))
        self._kernel.kill(replica.process)

    def replace(self, replica: Replica) -> None:
        """SIGTERM, as a rollout of the Deployment does; the next one starts with what is mounted then."""
        process = replica.process
        replica.stop.set()
        self._kernel.spawn(
            lambda: self._kernel.kill(process), "end of grace", self._kernel.system, after=STOP_WITHIN
        )

    def stop(self) -> None:
        """All of them, as when their Deployments are deleted."""
        for each in self.controllers:
            each.is_leaving = True
            self.replace(each)
        for each in self.servers:
            self._kernel.kill(each.process)
        self.controllers.clear()
        self.servers.clear()

    def _die(self, process: Process) -> None:
        for each in [each for each in self.servers if each.process is process]:
            self.restart_server(each)
        self._kernel.kill(process)

    # Webhook servers.

    def start_server(self, name: str, configuration: Configuration, skew: float = 0.0) -> Replica:
        replica = Replica(name, skew, Process(name, skew), configuration)
        self.servers.append(replica)
        self._boot(replica)
        return replica

    def _boot(self, replica: Replica) -> None:
        replica.lives += 1
        replica.process = process = Process(f"{replica.name}#{replica.lives}", replica.skew)

        def main() -> None:
            client = Client(self._network.connection(SERVER, replica.name))
            server = servers.Replica(client, lambda: replica.settings, replica.name)
            app = create_app(
                server.webhooks(features.FEATURES), max_in_flight=replica.settings.webhook.threads
            )
            replica.app = Reception(app.test_client())

        self._kernel.spawn(main, "boot", process)

    def restart_server(self, replica: Replica) -> None:
        replica.app = None
        self._kernel.spawn(lambda: self._start_again(replica), "kubelet", self._kernel.system, RESTART)
        self._kernel.kill(
            replica.process
        )  # the last step: one that dies at its own write does not return from it

    def _start_again(self, replica: Replica) -> None:
        if replica in self.servers:
            self._boot(replica)

    def ask(self, path: str, body: bytes, timeout: float) -> bytes:
        """As the API server calls the Service: one of the replicas, another one when the connection is refused."""
        kernel = self._kernel
        ready = [each for each in self.servers if each.app is not None and not each.process.dead]
        if not ready:
            raise Away("no endpoints available for service")
        replica = ready[kernel.dice.randrange(len(ready))]
        answered, answers = threading.Event(), []

        def answer() -> None:
            answers.append(replica.app.post(f"{path}?timeout={timeout:g}s", body))
            answered.set()

        kernel.spawn(answer, f"review {path}", replica.process)
        if not answered.wait(timeout):
            raise Away("context deadline exceeded")
        status, content = answers[0]
        if status != 200:
            raise Away(f"{status}: {content[:200]!r}")
        return bytes(content)
