"""One cluster with the product in it, on a kernel's clock."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import yaml
from prometheus_client import REGISTRY

import cloud.client
from cli.app import drawbridge
from cli.cluster import Cluster
from cli.installation import CONFIGURATIONS, POLICIES
from controllers.ingress_daemonset import readers
from dev.fake_api import FakeAPI, connection_to
from dev.fake_api import server as fake_server
from dev.fake_api.calls import Reply, Request, refusal
from dev.judge import Observation
from dev.judge.observation import INSTANCE_TAG
from dev.judge.reservation import NO_LEADER
from dev.lab import chart
from dev.simulator import logs
from dev.simulator.admission import OURS, Admission
from dev.simulator.core.kernel import EPOCH, Kernel, Task
from dev.simulator.models import calico, load_balancer
from dev.simulator.models.budgets import Budgets
from dev.simulator.models.calico import Calico
from dev.simulator.models.cloud import Cloud
from dev.simulator.models.health_checkers import HealthCheckers
from dev.simulator.models.kubernetes import Kubernetes, Model
from dev.simulator.models.load_balancer import LoadBalancer
from dev.simulator.objects import CHECK_PORT, INSTANCE_LABEL, SHOP
from dev.simulator.outside import Outside
from dev.simulator.policies import Policies
from dev.simulator.product import Configuration, Network, Product
from dev.simulator.promises import promises
from dev.simulator.terminals import Terminals, called
from kube.client import Resource
from kube.errors import KubeError
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, LEASES, NODES, PODS

Raw = dict[str, Any]
NAMESPACE = "drawbridge"
NAMESPACES = (NAMESPACE, "kube-system", "default", "shop")
CLOUD_SHOWN = 0.5
"""Seconds between two looks at the cloud's list, whose tasks end by themselves."""
RETRY = 10.0
PLACED = {**CONFIGURATIONS, **POLICIES, "ConfigMap": CONFIG_MAPS}
"""What of a release the fake API server has as objects."""
REPLICAS = 2
"""Pods of each of our Deployments."""
REFUSED_FOR = 60.0
"""Seconds without trouble of the network after which a deletion should not be refused any more."""
MISTAKE = "logs: no traceback of a mistake of ours"
STAYS_REFUSED = "ip: no deletion stays refused while the API server works"
WATCH_POLL = 5.0
"""Seconds after which a watch looks whether its client has gone."""
LONGEST_PAUSE = 5.0
"""Seconds after which a model takes a step although no object has changed: machines go and come by themselves."""
ANSWERED = 5.0
"""Seconds that a command without faults takes at most."""
SOON = (0.01, 0.3)
"""Seconds from a change to the step of a model."""
CACHE = Path(__file__).parents[2] / "build" / "simulator"


@dataclass(frozen=True)
class Entry:
    """One line of the history."""

    at: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at:9.3f}  {self.who:<28} {self.what}"


@dataclass
class History:
    entries: list[Entry] = field(default_factory=list)

    def note(self, at: float, who: str, what: str) -> None:
        self.entries.append(Entry(at, who, what))

    @property
    def digest(self) -> str:
        text = "\n".join(str(each) for each in self.entries)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Turns:
    """In place of the storage's lock: only one task runs at a time, and none waits within a request but for hooks."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._waiting = kernel, list[tuple[Task, Callable[[], bool]]]()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        kernel = self._kernel
        end = kernel.now + timeout
        while not predicate():
            if kernel.now >= end or kernel.task is None:
                return predicate()
            waiter = kernel.task, predicate
            self._waiting.append(waiter)
            if not kernel.park(end - kernel.now) and waiter in self._waiting:
                self._waiting.remove(waiter)
        return True

    def notify_all(self) -> None:
        """Wake those whose turn it is."""
        waiting, self._waiting = self._waiting, []
        for task, predicate in waiting:
            if predicate():
                self._kernel.wake(task)
            elif not task.process.dead:
                self._waiting.append((task, predicate))


class World:
    def __init__(self, kernel: Kernel, seed: int) -> None:
        logs.watch(lambda message: self.outside.judge.find(MISTAKE, self.kernel.now, message))
        fake_server.WATCH_POLL = WATCH_POLL
        self.kernel, self.seed = kernel, seed
        kernel.dice.seed(seed)
        self.history = History()
        self.models: list[Model] = []
        self.api = FakeAPI(*fake_server.DEFAULT_KINDS, *calico.KINDS, now=self.now)
        self._turns = Turns(kernel)
        storage: Any = self.api._storage
        storage.changed = self._turns
        self.api.after = self._answered
        self.api.held_back = Budgets(self.api).refusal
        self.network = Network(self.api, kernel, self.dice("network"))
        self.product = Product(kernel, self.api, self.network)
        self.admission = Admission(self.api, kernel, self.product.ask, self._user_of)
        self.api.webhooks = self.admission
        self.calico = Calico(self.api)
        self.cloud = Cloud(kernel, self.dice("cloud"))
        self.checkers = HealthCheckers(
            self.api, kernel, lambda name: self.network.connection("health-checker", name)
        )
        self.edge = LoadBalancer(self._answers, self._excluded)
        self.outside = Outside(self.api, kernel, self.calico, self.cloud, self.edge)
        self.outside.note = self.note
        self.admission.on_open = lambda name: self.outside.disturb(f"admission of {name}")
        self.cloud.on_change = lambda: self.network.written(kernel.process)
        self.network.on_write, self.network.on_lease = self.outside.written, self.outside.elected
        self.network.on_reserving = self.outside.reserving
        self._plug_in()
        self.configuration = Configuration()
        self.values: Raw = {}
        self.skews: Sequence[float] = (0.0,) * (2 * REPLICAS)
        """Of the clocks of our pods: controllers, then servers."""
        self.at_work: set[str] = set()
        """What people have begun, and not ended yet."""
        self.is_restored = False
        """Whether etcd is that of an earlier time."""
        self.suspended_until = 0.0
        """Until then rollouts stand still, as a hook of Helm's wants it."""
        self._placed: set[tuple[Resource, str, str]] = set()
        self.kubectl = self.api.client("kubectl")
        self._refused: dict[tuple[Resource, str, str], float] = {}
        self._refused_images: dict[str, float] = {}
        self._numbers = 0
        self.api.fault = self._struck
        for name in NAMESPACES:
            self.api.ensure_namespace(name)

    def _plug_in(self) -> None:
        """Put the models where the product opens sockets, and let the outside look."""
        cloud_client: Any = cloud.client
        cloud_client.Transport = self.cloud.transport
        reader: Any = readers
        reader.get = self.checkers.get
        system: Any = sys
        system.stdout, system.stderr = (Terminals(self.kernel, each) for each in (sys.stdout, sys.stderr))
        os.environ.update(TENCENTCLOUD_SECRET_ID="key-id", TENCENTCLOUD_SECRET_KEY="a-secret")  # noqa: S106
        self.kubernetes = Kubernetes(self.api, self.dice, self.calico, self.spawn, self.note)
        self.kubernetes.kubelets.answers = self.checkers.is_ready
        for name, model in self.kubernetes.models.items():
            self.run_model(model, name)
        self.run_model(self.checkers, "health checkers")
        self.every(load_balancer.PERIOD, self._probe, "load balancer")
        self.every(CLOUD_SHOWN, self.outside.look_at_the_bill, "bill")
        self.kernel.after_turn = self.outside.look

    def _answers(self) -> dict[str, int]:
        """What the load balancer is answered by the nodes that it probes."""
        off = self.kubernetes.kubelets.off
        names = [each["metadata"]["name"] for each in self.api.peek(NODES) if load_balancer.is_target(each)]
        return {name: 0 if name in off else self.checkers.probe(name, CHECK_PORT) for name in names}

    def _excluded(self) -> set[str]:
        nodes = self.api.peek(NODES)
        return {each["metadata"]["name"] for each in nodes if load_balancer.is_excluded(each)}

    def _probe(self) -> None:
        self.edge.poll()
        if not (self.outside.has_leader and self.network.is_calm):
            self.outside.disturb(NO_LEADER)
        self.outside.changed()

    @property
    def full_name(self) -> str:
        """Of the release; the names of its objects begin with it."""
        return str(self.values.get("fullnameOverride") or "drawbridge")

    def _user_of(self, manager: str) -> str:
        """The user by whose permissions a client acts."""
        if manager.startswith(OURS):
            return f"system:serviceaccount:{NAMESPACE}:{self.full_name}-{manager.removeprefix(OURS)}"
        return USERS.get(manager, manager)

    def now(self) -> datetime:
        """The true time, which no process knows."""
        return datetime.fromtimestamp(EPOCH + self.kernel.now, UTC)

    def dice(self, name: str) -> Random:
        """Chance of its own: what one part draws does not change what another one does."""
        return Random(f"{self.seed}/{name}")  # noqa: S311 - dice, no secret

    def note(self, who: str, what: str) -> None:
        self.history.note(self.kernel.now, who, what)

    # What operators see and do.

    def leader(self) -> str:
        """The holder of the Lease; "" for none."""
        lease = self.api.find(LEASES, "drawbridge", NAMESPACE) or {}
        return str((lease.get("spec") or {}).get("holderIdentity") or "")

    def some(self, resource: Resource, dice: Random, wanted: Callable[[Raw], bool]) -> Raw | None:
        found = [each for each in self.api.peek(resource) if wanted(each)]
        return dice.choice(found) if found else None

    def patch(self, resource: Resource, name: str, change: Raw) -> str:
        namespace = SHOP if resource.namespaced else None
        return self._tried(name, lambda: self.kubectl.patch(resource, name, change, namespace), change)

    def patch_template(self, resource: Resource, name: str, containers: Sequence[Raw]) -> str:
        """Of a workload; its containers keep what the change does not name."""
        held = self.api.find(resource, name, SHOP)
        if held is None:
            return ""
        known = held["spec"]["template"]["spec"]["containers"]
        new = [{**old, **change} for old, change in zip(known, containers, strict=True)]
        return self.patch(resource, name, {"spec": {"template": {"spec": {"containers": new}}}})

    def kubectl_create(self, resource: Resource, raw: Raw) -> str:
        namespace = SHOP if resource.namespaced else None
        name = raw["metadata"]["name"]
        done = self._tried(name, lambda: self.kubectl.create(resource, raw, namespace))
        if (status := raw.get("status")) and self.api.find(resource, name, namespace or ""):
            self.api.edit(resource, name, {"status": status}, namespace or "", manager="kubelet")
        return done

    def kubectl_delete(self, resource: Resource, raw: Raw) -> str:
        """Once; a person whose deletion is refused tries again for as long as it is."""
        name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace")
        done = self._tried(name, lambda: self.kubectl.delete(resource, name, namespace))
        if done != name:
            self.kernel.spawn(lambda: self._insist(resource, raw), f"deletion of {name}", self.kernel.system)
        return done

    def _insist(self, resource: Resource, raw: Raw) -> None:
        name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace")
        undisturbed = 0.0
        while undisturbed < REFUSED_FOR:
            self.kernel.sleep(RETRY)
            undisturbed = undisturbed + RETRY if self.network.is_calm else 0.0
            held = self.api.find(resource, name, namespace or "")
            is_there = held is not None and held["metadata"]["uid"] == raw["metadata"]["uid"]
            if (
                not is_there
                or self._tried(name, lambda: self.kubectl.delete(resource, name, namespace)) == name
            ):
                return
        self.outside.judge.find(STAYS_REFUSED, self.kernel.now, f"{resource.plural} {name}")

    def _tried(self, name: str, work: Callable[[], object], change: object = "") -> str:
        try:
            work()
        except KubeError as error:
            return f"{name} {change or ''}: {error}"
        return f"{name} {change or ''}".rstrip()

    def drawbridge(self, *arguments: str) -> str:
        """The command of an administrator; its output."""
        cluster = Cluster(self.kubectl, SHOP, connection_to(self.api, "kubectl"), self.now)
        code, output = called(self.kernel, drawbridge, [*arguments, "--yes"], lambda _options: cluster)
        self.note("drawbridge", f"{' '.join(arguments)} -> {code}")
        return output

    def observed_at_rest(self) -> Observation:
        """With what the command and the metrics say, between two crashes of pods that crash again and again."""
        printed, version = list[str](), -1
        while version != self.outside.version:
            version = self.outside.version
            self.run(ANSWERED)
            self.kernel.spawn(
                lambda: printed.append(self.drawbridge("status", "--output=json")),
                "status",
                self.kernel.system,
            )
            self.run(ANSWERED)
        metrics = {
            " ".join((each.name, *each.labels.values())): each.value
            for family in REGISTRY.collect()
            for each in family.samples
        }
        tagged = {value for key, value in self.cloud.account.tags if key == INSTANCE_TAG}
        seen = self.outside.observation()
        return replace(seen, report=json.loads(printed[-1]), metrics=metrics, tagged=tagged)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def refuse(self, resource: Resource, manager: str, until: float, method: str = "") -> None:
        """Writes of *resource* by *manager* are denied, as by a policy of others; or requests of one *method*."""
        self._refused[resource, manager, method] = until

    def refuses(self, resource: Resource, manager: str) -> bool:
        return self.kernel.now < self._refused.get((resource, manager, ""), 0.0)

    def refuse_image(self, image: str, until: float) -> None:
        """No Deployment may have it, and no new pod, says a policy of others."""
        self._refused_images[image] = until

    def calm(self) -> None:
        """From now on nothing goes wrong any more."""
        self.network.calm()
        self.cloud.calm()
        self._refused.clear()
        kubelets = self.kubernetes.kubelets
        for name in sorted(kubelets.silent.keys() - kubelets.off):
            kubelets.recover(name, self.now())
        for name in sorted(kubelets.dead):
            self.forget_machine(name)

    def _struck(self, call: Request) -> Reply | None:
        who, now = call.headers.get("user-agent", ""), self.kernel.now
        for (resource, manager, method), until in self._refused.items():
            is_meant = call.method == method if method else call.method != "GET"
            if manager == who and is_meant and _is_of(call, resource) and now < until:
                return refusal(403, "Forbidden", "denied by a policy of others")
        for image, until in self._refused_images.items():
            is_meant = _is_of(call, DEPLOYMENTS) or (_is_of(call, PODS) and call.method == "POST")
            if now < until and is_meant and f'"{image}"' in json.dumps(call.body):
                return refusal(403, "Forbidden", f"image {image} is denied by a policy of others")
        return None

    def end_machine(self, name: str) -> None:
        """Its instance is terminated; its Node stays until a user deletes it."""
        node = self.api.find(NODES, name)
        if node is None:  # it has died before, and was forgotten
            return
        for each in self.registered_with(name):
            self.kubernetes.kubelets.switch_off(each, self.now())
        if instance := node["metadata"]["labels"].get(INSTANCE_LABEL):
            self.cloud.account.add_instance(instance, state="TERMINATING")

    def registered_with(self, name: str) -> list[str]:
        """The names of all Nodes that the machine of this one has: it may be registered twice."""
        instances = {
            each["metadata"]["name"]: each["metadata"]["labels"].get(INSTANCE_LABEL)
            for each in self.api.peek(NODES)
        }
        return [
            each for each, instance in instances.items() if name in instances and instance == instances[name]
        ]

    def forget_machine(self, name: str) -> None:
        """As the cloud's controller of nodes does once there is no such machine."""
        client = self.api.client("cloud-controller-manager")
        for each in self.registered_with(name):
            self._tried(each, lambda: client.delete(NODES, each))  # noqa: B023

    # What is installed.

    def install(self, values: Raw) -> None:
        """As `helm upgrade --install`: the webhook configurations, the settings, and all else that the API serves."""
        self.values = values
        placed = set()
        manifests = rendered_of(values)
        self.admission.policies = Policies(manifests)
        for each in manifests:
            resource = PLACED.get(each["kind"])
            if resource is None:
                continue
            self.api.put(resource, self._with_bundles(resource, each), manager="helm")
            placed.add((resource, each["metadata"]["name"], each["metadata"].get("namespace", "")))
            if "config.yaml" in (each.get("data") or {}):
                self.configuration.mount(each["data"]["config.yaml"])
        for resource, name, namespace in sorted(self._placed - placed, key=str):
            if self.api.find(resource, name, namespace):
                self.api.remove(resource, name, namespace)
        self._placed = placed
        if values["ipReservation"].get("standing", {}).get("enabled") and not self.api.peek(calico.POOLS):
            self.calico.show({calico.POOL: ""})

    def _with_bundles(self, resource: Resource, raw: Raw) -> Raw:
        """What others have injected stays where the chart has none: Helm changes what is its own."""
        held = self.api.find(resource, raw["metadata"]["name"], raw["metadata"].get("namespace", "")) or {}
        known = {each["name"]: each["clientConfig"].get("caBundle") for each in held.get("webhooks") or ()}

        def kept(webhook: Raw) -> Raw:
            config = webhook["clientConfig"]
            bundle = config.get("caBundle") or known.get(webhook["name"])
            return webhook | {"clientConfig": config | ({"caBundle": bundle} if bundle else {})}

        return raw | {"webhooks": [kept(each) for each in raw["webhooks"]]} if "webhooks" in raw else raw

    @property
    def claims(self) -> list[str]:
        """The names of the ConfigMaps of address claims."""
        names = (each["metadata"]["name"] for each in self.api.peek(CONFIG_MAPS))
        return [name for name in names if name.startswith("anycast-ip-")]

    def promise(self, values: Raw) -> None:
        """From now on, what is promised with these values."""
        self.outside.judge.promise(promises(values, restored=self.is_restored))

    def start_release(self) -> None:
        """The pods of its Deployments."""
        skews = iter(self.skews)
        for number in range(REPLICAS):
            name = f"{self.full_name}-controllers-{number}"
            self.product.start_controllers(name, self.configuration, next(skews))
        for number in range(REPLICAS):
            self.product.start_server(f"{self.full_name}-webhook-{number}", self.configuration, next(skews))

    def remove_release(self) -> None:
        """As `helm uninstall`: the webhook configurations first, then all else."""
        for resource, name, namespace in sorted(self._placed, key=str):
            if self.api.find(resource, name, namespace):
                self.api.remove(resource, name, namespace)
        self._placed = set()
        self.admission.policies = Policies([])
        self.product.stop()

    # Models.

    def spawn(self, work: Callable[[], None], name: str) -> None:
        """Beside all else of the world."""
        self.kernel.spawn(work, name, self.kernel.system)

    def run_model(self, model: Model, name: str) -> None:
        """Step it soon after each change, and when it is due."""
        kernel, dice, cluster = self.kernel, self.dice(name), self.kubernetes.cluster
        self.models.append(model)

        def loop() -> None:
            seen = -1
            due: float | None = 0.0
            while True:
                seen = cluster.version()
                at = model.step(self.now())
                due = None if at is None else (at - self.now()).total_seconds()
                end = kernel.now + (LONGEST_PAUSE if due is None else min(LONGEST_PAUSE, max(0.01, due)))
                is_news = self._turns.wait_for(lambda: cluster.version() != seen, end - kernel.now)  # noqa: B023
                kernel.sleep(dice.uniform(*SOON) if is_news else 0.0)

        kernel.spawn(loop, name, kernel.system)

    def every(self, seconds: float, work: Callable[[], object], name: str) -> None:
        def loop() -> None:
            while True:
                work()
                self.kernel.sleep(seconds)

        self.kernel.spawn(loop, name, self.kernel.system)

    def run(self, seconds: float) -> None:
        self.kernel.run(self.kernel.now + seconds)

    # History.

    def _answered(self, call: Request, reply: Reply) -> Reply | None:
        if call.method != "GET" and "/leases/" not in call.path:
            path = call.path.removeprefix("/api/v1").removeprefix("/apis").removeprefix("/namespaces")
            who = call.headers.get("user-agent", "")
            made = reply.json if call.method == "POST" and reply.status == 201 else {}
            name = f" {made['metadata']['name']}" if "metadata" in made else ""
            self.note(who, f"{call.method} {path}{name} -> {reply.status}")
        return None


def _is_of(call: Request, resource: Resource) -> bool:
    return call.path.startswith(resource.root) and f"/{resource.plural}" in call.path


USERS = {
    "kubectl": "kubernetes-admin",
    "kube-controller-manager": "system:kube-controller-manager",
    "kube-scheduler": "system:kube-scheduler",
    "kubelet": "system:node:node",
}


def rendered_of(values: Raw) -> Sequence[Raw]:
    return rendered(yaml.safe_dump(values, sort_keys=True))


@functools.cache
def rendered(values: str) -> Sequence[Raw]:
    """What Helm makes of the chart; kept between runs, as it takes longer than minutes of the simulation."""
    name = hashlib.sha256(values.encode() + chart_digest()).hexdigest()[:24]
    file = CACHE / f"{name}.json"
    if not file.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        manifests = [each for each in yaml.load_all(chart.manifests(values), yaml.CSafeLoader) if each]
        partial.write_text(json.dumps(manifests))
        partial.rename(file)
    return list(json.loads(file.read_text()))


@functools.cache
def chart_digest() -> bytes:
    digest = hashlib.sha256()
    for file in sorted(chart.CHART.rglob("*")):
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.digest()
