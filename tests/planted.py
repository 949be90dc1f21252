"""`python -m tests.planted [--count 20] [--seed 1] [--swaps]`: does the simulated world find faults planted one by one?

Faults are drawn by seed from the places of ``tests.mutation``, or are orders of writes that are swapped. Each is judged
in a forked process: the directed histories of its feature, then seeds that have the feature, until a promise is broken.
Of swapped orders, first a walk through the feature in which the leader dies after each of its writes.
"""

from __future__ import annotations

import argparse
import ast
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from dev.simulator.core.kernel import Kernel
from dev.simulator.core.once import begin
from tests.mutation import TARGETS, Finder, Mutant, places

if TYPE_CHECKING:
    from dev.simulator.scenario import Scenario

LONGEST = 600
"""Seconds of one scenario: one that never ends is found, too."""

SWAPS = [
    (  # a deletion is admitted before its record is durable
        "calico/ledger.py",
        "segment = self._create(name, records, batch, may_exist=may_exist)",
        "_answer(batch, IPReservation(ObjectMeta(name=name)))",
    ),
    (  # small segments are deleted before the one that takes their place is stored
        "controllers/ip_reservation/release_reconciler.py",
        "created += self._compact(action)",
        "for each in (each for each in snapshot.ours if each.metadata.name in action.sources):\n"
        "                    self.reservations.delete(each)",
    ),
    (  # a pod is marked before its reservation is durable
        "controllers/ip_reservation/standing.py",
        "self._reserve(planned.reserved, epoch.owner, settings)",
        "ahead = NO_KEYS.union(*(self._candidates[uid].keys for uid in planned.reserved))\n"
        "        self._claim(planned.reserved, ahead, epoch.owner)\n"
        "        for key in self._pods_of(planned.reserved):\n"
        "            self.marking.add(key)",
    ),
    (  # a claim is dropped before its address is unbound
        "controllers/anycast_ip/reconciler.py",
        "self._cloud.disassociate(claim.address)",
        "self._claims.drop(snapshot.uid)",
    ),
    (  # the taint is taken off before the address is bound
        "controllers/anycast_ip/reconciler.py",
        "self._cloud.associate(claim.address, claim.instance)",
        "self._open(snapshot, _)",
    ),
    (  # an address is released before the claim says so
        "controllers/anycast_ip/reconciler.py",
        "if not claim.releasing:\n            self._claims.put(replace(claim, releasing=True))",
        "self._cloud.release(claim.address)",
    ),
    (  # a claim is dropped before the tags of its address are deleted
        "controllers/anycast_ip/reconciler.py",
        "refused = self._cloud.delete_tags(uid, sorted(tags))",
        "self._claims.drop(uid)",
    ),
    (  # a pod's gate is taken away before its placement is written
        "controllers/elasticity/writer.py",
        "self._pods.patch(action.pod, action.patch)",
        'self._pods.patch(action.pod, {"spec": {"schedulingGates": []}})',
    ),
    (  # a pod's place under the cap is given up before the pod is written
        "controllers/elasticity/writer.py",
        "            self._write(action)\n        except Conflict:\n            self._pods.refresh(action.pod)  #",
        "            self._forget(action)",
    ),
    (  # a new leader places pods before they are fenced
        "controllers/elasticity/takeover.py",
        "with self._lock:\n            return not self._open or",
        "return True",
    ),
    (  # a node's pods are replaced before the node is detached
        "controllers/ingress_daemonset/nodes.py",
        "    if _is_over(rollout, clearance):\n        annotations = _attached(rollout, now)",
        "    if clearance.begun and rollout.outdated and not clearance.waits:\n"
        '        return {}, {"template": rollout.body["spec"]["template"]}',
    ),
    (  # a node is attached before its new pods are available
        "controllers/ingress_daemonset/nodes.py",
        "    return rollout.phase is Phase.ATTACHING or (untouched and done)",
        "    if rollout.phase is Phase.UPDATING:\n        return True",
    ),
    (  # nodes are detached before the IngressDaemonSet has our finalizer
        "controllers/ingress_daemonset/planner.py",
        "for node in rollout.nodes:\n        if not node.uncertain:\n            clearance",
        "updates = {*rollout.updates()}\n    chosen = updates | rollout.drained(updates)",
    ),
    (  # the pods of a node that leaves are stopped before the load balancer uses it no more
        "controllers/ingress_daemonset/rollout.py",
        "if not grace and not backends:",
        'return replace(found, action=delete("Deployment", held.metadata))',
    ),
]
"""Of each module: a statement, and what is done before it that should come later."""


def swapped(path: str, statement: str, earlier: str) -> Mutant:
    source = Path(path).read_text()
    assert source.count(statement) == 1, f"{path} has changed: {statement}"
    begin = source.index(statement)
    indent = "" if statement.startswith(" ") else " " * (begin - source.rindex("\n", 0, begin) - 1)
    changed = f"{source[:begin]}{earlier}\n{indent}{source[begin:]}"
    return Mutant(Path(path), source[:begin].count("\n") + 1, statement, earlier, ast.parse(changed))


def drawn(seed: int, count: int) -> list[Mutant]:
    found = [place for path in TARGETS for place in places(Path(path))]
    return [each.mutant for each in Random(seed).sample(found, count)]  # noqa: S311 - dice, no secret


def feature_of(path: Path) -> str:
    package, *rest = path.parts
    return {"certs": "certificates", "calico": "ip_reservation"}.get(package, rest[0])


def scenarios(feature: str, seeds: int) -> Iterator[Scenario]:
    from dev.simulator.histories import HISTORIES
    from dev.simulator.scenario import drawn

    yield from (each for each in HISTORIES.values() if feature in each.features)
    yield from (each for each in map(drawn, range(1, seeds + 1)) if feature in each.features)


def deaths(kernel: Kernel, feature: str) -> Iterator[Scenario]:
    """What comes in another order shows when a leader dies in between."""
    from dev.simulator import crashes, fleet

    for each in [each for each in crashes.WALKS.values() if feature in each.features]:
        yield each
        for number in range(1, crashes.writes_in(fleet.apart(kernel, each)) + 1):
            yield crashes.crashing(each, number)


def verdict(kernel: Kernel, mutant: Mutant, seeds: int, *, dying: bool) -> str:
    """To be asked in a process of its own, before any module of the product is imported."""
    sys.meta_path.insert(0, Finder(mutant))  # type: ignore[arg-type]
    from dev.simulator import fleet

    fleet.preload()
    feature = feature_of(mutant.path)
    for scenario in chain(deaths(kernel, feature) if dying else (), scenarios(feature, seeds)):
        signal.alarm(LONGEST)
        if findings := fleet.apart(kernel, scenario).findings:
            return f"found: {findings[0].invariant}: {findings[0].message} [{scenario.name}]"
    return "survived"


def judge(kernel: Kernel, mutant: Mutant, seeds: int, *, dying: bool) -> None:
    """Print the verdict, and end this process."""

    def never_ends(*_: object) -> None:
        print(f"{mutant}\n    found: it never ends", flush=True)
        os.killpg(0, signal.SIGKILL)

    os.setpgid(0, 0)
    signal.signal(signal.SIGALRM, never_ends)
    try:
        text = verdict(kernel, mutant, seeds, dying=dying)
    except BaseException as error:
        text = f"found: {type(error).__name__}: {error}"
    print(f"{mutant}\n    {text}", flush=True)
    os._exit(0)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--swaps", action="store_true", help="swapped orders of writes instead")
    parser.add_argument("--only", default="", help="of these, those whose description contains this")
    parser.add_argument("--seeds", type=int, default=60, help="the last seed of the simulated world")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(words)
    kernel = begin()
    running = 0
    faults = [swapped(*each) for each in SWAPS] if options.swaps else drawn(options.seed, options.count)
    for mutant in faults:
        if options.only not in str(mutant):
            continue
        if running == options.jobs:
            os.wait()
            running -= 1
        running += 1
        if not os.fork():
            judge(kernel, mutant, options.seeds, dying=options.swaps)
    for _ in range(running):
        os.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
