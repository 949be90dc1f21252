"""The real health checkers of a test's nodes, and a load balancer that asks them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from dev.lab import health_checkers
from dev.lab.health_checkers import Checker
from dev.lab.session import Lab
from dev.outside import Outside, Prober, judged, of_edges
from kube.client import Client
from tests.cluster.ingress_daemonset import INGRESS_DAEMONSETS, SECONDS
from tests.cluster.ingress_daemonset_edge import Edge

PATHS = ("/healthz", "/ok", "/")
EVERY = 0.1


@contextmanager
def checking(edge: Edge, nodes: Sequence[str], **environment: str) -> Iterator[dict[str, Checker]]:
    """One of each node's, by the short names of the nodes."""
    names = [edge.node_name(each) for each in nodes]
    with health_checkers.checking(edge.lab, edge.namespace, names, **environment) as checkers:
        yield {edge.short(name): each for name, each in checkers.items()}


@contextmanager
def judged_by_answers(
    edge: Edge, checkers: Mapping[str, Checker], client: Client | None = None
) -> Iterator[Outside]:
    """A load balancer probes these *checkers*, and uses all of their nodes."""
    balancer = Prober(lambda: {edge.node_name(name): each.status() for name, each in checkers.items()})
    where = {"client": client, "balancer": balancer, "namespace": edge.namespace}
    with judged(edge.lab, of_edges(), INGRESS_DAEMONSETS, **where) as outside:
        outside.wait(lambda seen: len(seen.uses) == len(checkers), "the load balancer to use all nodes")
        yield outside


@contextmanager
def asking(lab: Lab, checkers: Sequence[Checker]) -> Iterator[None]:
    """A load balancer asks them all, again and again, and gets 200 first and last.

    Whatever path it asks for, the answer is the same.
    """
    ended = threading.Event()
    with ThreadPoolExecutor(len(checkers)) as pool:
        asked = [pool.submit(_ask_on, each, ended.wait) for each in checkers]
        try:
            _await_answers(lab, checkers)
            yield
            _await_answers(lab, checkers)
        finally:
            ended.set()
        for each in asked:
            each.result()


def _await_answers(lab: Lab, checkers: Sequence[Checker]) -> None:
    what = "the load balancer to have heard 200 of all"
    lab.wait(lambda: all(each.course()[-1:] == [200] for each in checkers), SECONDS, what)


def _ask_on(checker: Checker, pause: Callable[[float], bool]) -> None:
    while not pause(EVERY):
        first, *others = [checker.ask(path) for path in (*PATHS, PATHS[0])]
        checker.answers += [first, others[-1]]
        if first.text == others[-1].text:  # so it was the same all the while
            assert {(each.status, each.text) for each in others} == {(first.status, first.text)}


def await_all(lab: Lab, checkers: Sequence[Checker], status: int, text: str = "") -> None:
    what = f"all health checkers to answer {status} {text}"
    lab.wait(lambda: all(each.says(status, text) for each in checkers), 60, what)
