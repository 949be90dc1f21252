"""Sessions of the command on the fake API server: tests/data/cli. `python -m tests.cli_sessions` writes them again.

A session begins with `# ` and its sentence. `% ` is a change of the world, and goes on over indented lines; `@-5m` in
it is five minutes before NOW. `$ ` is a command, or a page of the dashboard, or the press of a button there, with the
answer to its question after `<<<` and a filter of lines after `| grep`. Below are its lines, `> ` its writes, and its
exit code unless that is 0, or the status of the answer to the button: a command without `> ` has written nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import yaml

from api.anycast_ip import ALLOW_LIST_LABEL, Entry, data_of
from api.elasticity import TAINT
from api.ingress_daemonset.types import resource
from api.standing import with_epoch
from calico.pools import CONFIGURATIONS
from calico.segment import LEVEL, MANAGED_BY, MANAGER, body
from controllers.anycast_ip.claim import LABELS, POOL, Claim, data, name_of
from controllers.ingress_daemonset.children import version_of
from controllers.ingress_daemonset.revisions import body_of
from dev.fake_api import BUILT_IN, CALICO_V3, INGRESS_DAEMONSETS, FakeAPI, Kind, refusal
from dev.fake_api.calls import Reply, Request
from kube.resources import VALIDATING_WEBHOOKS
from kube.types import INSTANCE_TYPE, SUPER_NODE
from tests import calico_pools, cli, explained
from tests import ingress_daemonset_world as edge
from tests.charts import render
from tests.dashboard import Page
from tests.factories import NOW, raw_pod, record
from tests.ingress_daemonset_world import raw_resource

FILES = sorted((Path(__file__).parent / "data" / "cli").glob("*.txt"))
REASONS = {
    "401": "Unauthorized",
    "403": "Forbidden",
    "404": "NotFound",
    "422": "Invalid",
    "429": "TooManyRequests",
    "500": "InternalError",
    "503": "ServiceUnavailable",
}
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
KINDS = (*calico_pools.KINDS, Kind(CONFIGURATIONS[1], "IPAMConfig"))
RESOURCES = {each.kind: each.resource for each in (*BUILT_IN, *CALICO_V3, *INGRESS_DAEMONSETS, *KINDS)}
Raw = dict[str, Any]


@dataclass
class Session:
    """*lines* are all below its sentence."""

    name: str
    lines: list[str] = field(default_factory=list)

    @property
    def needs_helm(self) -> bool:
        return any(line.startswith("% chart") for line in self.lines)


def sessions(path: Path) -> list[Session]:
    found: list[Session] = []
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            found.append(Session(line[2:]))
        else:
            found[-1].lines.append(line)
    return found


def played(session: Session) -> str:
    """The session with what its commands print now."""
    with TemporaryDirectory() as directory:
        world = World(Path(directory))
        lines = [f"# {session.name}"]
        for step in _steps(session.lines):
            lines.append(step)
            if step.startswith("% "):
                world.change(step[2:])
            else:
                lines += world.printed(step[2:])
    return "\n".join(lines) + "\n"


def _steps(lines: Sequence[str]) -> Iterator[str]:
    """Changes and commands, without what was printed."""
    step = ""
    for line in lines:
        if line.startswith(("% ", "$ ")):
            if step:
                yield step
            step = line
        elif step.startswith("% ") and line.startswith("  "):
            step += f"\n{line}"
    if step:
        yield step


class World:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._refused: list[tuple[str, Reply]] = []
        self._forbidden = "$^"
        self._api = self._made(cli.installed())

    def change(self, statement: str) -> None:
        """Any kind has `% Kind namespace/name {...}`; the other verbs save the long form of an object, or refuse."""
        verb, _, rest = statement.partition(" ")
        where, _, text = rest.partition(" ")
        namespace, _, name = where.rpartition("/")
        match verb:
            case "install":
                self._api = self._made(cli.installed(*rest.split()))
            case "pools":
                self._api = self._made(cli.installed(*rest.split(), kinds=KINDS))
            case "bare" | "chart" | "chart-with-pools":
                kinds = (*BUILT_IN, *CALICO_V3, *INGRESS_DAEMONSETS, *KINDS[0 if "pools" in verb else 2 :])
                objects = render(explained.VALUES | _read(rest)) if verb != "bare" else {}
                self._api = self._made(explained.installed(FakeAPI(*kinds, now=lambda: NOW), objects))
            case "config":
                cli.configure(self._api, where, **_read(text))
            case "pod":
                self._put("Pod", raw_pod(name, **{"namespace": namespace} | _read(text)))
            case "epoch":
                found = self._api.get(VALIDATING_WEBHOOKS, "drawbridge")
                self._api.put(VALIDATING_WEBHOOKS, with_epoch(found, where))
            case "segment":
                self._put("IPReservation", _segment(where, _read(text)))
            case "pool":
                self._api.put(calico_pools.POOLS, calico_pools.pool(where, **_read(text)))
            case "block":
                self._api.put(calico_pools.BLOCKS, calico_pools.block(where, *text.split()))
            case "claim":
                self._put("ConfigMap", _claim(**_read(rest)))
            case "allowed":
                found = msgspec.convert(_read(rest), tuple[Entry, ...])
                metadata = {
                    "name": "anycast-ips",
                    "namespace": "drawbridge",
                    "labels": {ALLOW_LIST_LABEL: "anycast-ip"},
                }
                self._put("ConfigMap", {"metadata": metadata, "data": data_of(found)})
            case "web":
                status = _read(rest).pop("status", {})
                self._put("IngressDaemonSet", _web(**_read(rest)) | {"status": status})
            case "revision":
                self._put("ControllerRevision", body_of(resource(_web(**_read(text))), int(where)))
            case "edge":
                self._edge = _at_rest(where.split(","), _web(**_read(text)))
                self._mirror()
            case "super-node":
                self._put(
                    "Node",
                    _node(where, {INSTANCE_TYPE: SUPER_NODE} | _read(text), msgspec.to_builtins(TAINT)),
                )
                self._put("Node", _node("home-1", {}))
            case "deployed":
                for kind, raw in _deployed(where, **_read(text)):
                    self._put(kind, raw)
            case "retemplate":
                self._edge.retemplate(where)
                self._edge.turn()
                self._mirror()
            case "lease":  # written at this time
                now, written = self._api.now, _time(_read(where))
                self._api.now = lambda: written
                self._put("Lease", cli.lease(_time(_read(text))))
                self._api.now = now
            case "file":
                (self._directory / where).write_text(text)
            case "unserved":
                self._api.unserved = set(rest.split())
            case "refuse":
                pattern, code, message = rest.split(" ", 2)
                self._refused.insert(0, (pattern, refusal(int(code), REASONS[code], message)))
            case "forbid":
                self._forbidden = rest
            case "edit":
                place, _, text = text.partition(" ")
                namespace, _, name = place.rpartition("/")
                self._api.edit(RESOURCES[where], name, _read(text), namespace)
            case "remove":
                namespace, _, name = text.rpartition("/")
                self._api.remove(RESOURCES[where], name, namespace)
            case _:
                found = _read(text)
                given = {"name": name} | ({"namespace": namespace} if namespace else {})
                self._put(verb, found | {"metadata": given | found.get("metadata", {})})

    def _mirror(self) -> None:
        for kind, raws in (
            ("IngressDaemonSet", [self._edge.raw]),
            ("Node", self._edge.nodes.values()),
            ("Deployment", self._edge.deployments.values()),
        ):
            for raw in raws:
                self._put(kind, raw)

    def printed(self, line: str) -> list[str]:
        """What the command prints, writes and ends with."""
        line, _, pattern = line.partition(" | grep ")
        command, _, answer = line.partition(" <<< ")
        program, *arguments = (self._placed(each) for each in shlex.split(command))
        before, ended = len(self._api.writes), ""
        match program:
            case "page":
                lines = Page(cli.cluster_of(self._api)).lines(*arguments)
            case "press":
                *lines, ended = Page(cli.cluster_of(self._api)).press(*arguments)
            case _:
                result = cli.run(self._api, program, *arguments, answer=f"{answer}\n" if answer else None)
                lines = result.output.replace(f"{self._directory}/", "").rstrip("\n").splitlines()
                ended = f"[{result.exit_code}]" if result.exit_code else ""
        writes = [each for each in self._api.writes[before:] if "accessreviews" not in each.path]
        if program == "doctor":  # which tries what it has random names for
            writes = []
        found = [each.rstrip() for each in lines if re.search(pattern, each)]
        return [*found, *map(_written, writes), *filter(None, [ended])]

    def _placed(self, argument: str) -> str:
        path = self._directory / argument
        return str(path) if path.is_file() else argument

    def _put(self, kind: str, raw: Raw) -> None:
        if namespace := raw["metadata"].get("namespace"):
            self._api.ensure_namespace(namespace)
        self._api.put(RESOURCES[kind], raw)

    def _made(self, api: FakeAPI) -> FakeAPI:
        api.fault = self._answer
        return api

    def _answer(self, call: Request) -> Reply | None:
        for pattern, reply in self._refused:
            if re.search(pattern, f"{call.method} {call.path}?{call.query.get('fieldSelector', '')}"):
                return reply
        return cli.answered(call, forbidden=self._forbidden)


def _written(call: Request) -> str:
    body = re.sub(
        r'("uid": |resourceVersion": |resourceVersion", "value": )"[^"]*"', r'\1"*"', json.dumps(call.body)
    )
    return f"> {call.method} {call.path} {body}"


def _segment(name: str, fields: Sequence[Raw]) -> Raw:
    times = ("at", "ended")
    records = [
        record(**{key: _time(value) if key in times else value for key, value in each.items()})
        for each in fields
    ]
    raw = body(records)
    raw["metadata"] |= {"name": name, "labels": {MANAGED_BY: MANAGER, LEVEL: "0"}}
    return raw


def _claim(**fields: Any) -> Raw:
    """In the namespace of Drawbridge."""
    given = {"node": POOL, "instance": "ins-1", "token": "t", "name": "n", "asked": NOW, **fields}
    metadata = {"name": name_of(fields["uid"]), "namespace": "drawbridge", "labels": LABELS}
    return {"metadata": metadata, "data": data(msgspec.convert(given, Claim))}


def _web(image: str = "proxy:1", status: Any = None, **spec: Any) -> Raw:
    """IngressDaemonSet edge/web, whose container has this *image*."""
    pod = {"containers": [{"name": "proxy", "image": image}]} | spec.pop("pod", {})
    return raw_resource(pod, **spec)


def _at_rest(names: Sequence[str], raw: Raw) -> edge.World:
    """Each node is in the zone of its name's first letter."""
    made = edge.World(raw, *names)
    for name, node in made.nodes.items():
        node["metadata"]["labels"] = {"topology.kubernetes.io/zone": name[0]}
    made.settle()
    return made


def _node(name: str, labels: Raw, *taints: Raw) -> Raw:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "pods": "110"}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [*taints]}, "status": ready}


def _deployed(name: str, annotations: Raw, replicas: int) -> Iterator[tuple[str, Raw]]:
    """A Deployment of namespace shop after its second template, with its pods on home-1."""
    place, labels = {"namespace": "shop"}, {"app": name}
    spec = {"containers": [{"name": "app", "image": "app"}]}
    template = {"metadata": {"annotations": annotations, "labels": labels}, "spec": spec}
    workload = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    yield "Deployment", {"metadata": place | {"name": name, "uid": f"uid-{name}"}, "spec": workload}
    for number in (1, 2):
        hashed = {"pod-template-hash": str(number)}
        numbered = place | {"name": f"{name}-{number}", "uid": f"uid-rs-{number}"}
        numbered |= {"annotations": {"deployment.kubernetes.io/revision": str(number)}}
        made = template | {"metadata": template["metadata"] | {"labels": labels | hashed}}
        owned = {"ownerReferences": [_owner("Deployment", name, f"uid-{name}")]}
        yield "ReplicaSet", {"metadata": numbered | owned, "spec": workload | {"template": made}}
    for number in range(replicas):
        metadata = place | {"name": f"{name}-2-{number}", "uid": f"uid-{number}", "annotations": annotations}
        metadata |= {
            "labels": labels | hashed,
            "ownerReferences": [_owner("ReplicaSet", f"{name}-2", "uid-rs-2")],
        }
        yield (
            "Pod",
            {"metadata": metadata, "spec": spec | {"nodeName": "home-1"}, "status": {"phase": "Running"}},
        )


def _owner(kind: str, name: str, uid: str) -> Raw:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _read(text: str) -> Any:
    text = re.sub(r"@(\S+:\d+)\b", lambda found: version_of(resource(_web(found[1]))).revision, text)
    return yaml.safe_load(re.sub(r"@([+-])(\d+)([smhd])", _moment, text) or "{}")


def _moment(found: re.Match[str]) -> str:
    sign, count, unit = found.groups()
    delta = timedelta(**{UNITS[unit]: int(f"{sign}{count}")})
    return f'"{NOW + delta:%Y-%m-%dT%H:%M:%SZ}"'


def main() -> None:
    for path in FILES:
        path.write_text("\n".join(played(each) for each in sessions(path)))


if __name__ == "__main__":
    main()
