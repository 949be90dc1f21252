"""Each TCP port of a Service leads to one of the Service's ready pods, chosen for each connection.

It stands in for kube-proxy where Services and pods are addresses of the loopback. A connection stays with
its pod even when the pod is no longer ready; where no pod is, nothing listens, so that a caller is refused at
once. Pods are found by the selector, because EndpointSlices refuse loopback addresses. ``default/kubernetes``
leads to the API server. Session affinity, UDP and whatever is not on the loopback are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from dev.lab.informing import Whole, informer_of
from dev.lab.kubeconfig import api_server, client_of
from dev.lab.relay import Address, Relay
from kube.client import Client
from kube.informer import Informer
from kube.resources import PODS, SERVICES

SYNC = 30.0
LISTEN_AGAIN = 1.0

Table = dict[Address, tuple[Address, ...]]  # where to listen, and where that may lead


def table(services: Iterable[Whole], pods: Sequence[Whole], api: Address) -> Table:
    """Where every Service's every TCP port leads."""
    return {
        (address, port["port"]): tuple(sorted(_targets(service, port, pods, api)))
        for service in services
        if is_loopback(address := service.spec.get("clusterIP", ""))
        for port in service.spec.get("ports", ())
        if port.get("protocol", "TCP") == "TCP"
    }


def _targets(
    service: Whole, port: Mapping[str, Any], pods: Sequence[Whole], api: Address
) -> Iterator[Address]:
    if (service.metadata.namespace, service.metadata.name) == ("default", "kubernetes"):
        yield api
    for pod in pods:
        number = target_port(port, pod)
        if selects(service, pod) and _is_ours(pod) and number:
            yield pod.status["podIP"], number


def selects(service: Whole, pod: Whole) -> bool:
    """Whether the Service leads to the pod now."""
    selector = service.spec.get("selector", {})
    return (
        bool(selector)
        and service.metadata.namespace == pod.metadata.namespace
        and selector.items() <= pod.metadata.labels.items()
        and pod.status.get("phase") not in ("Succeeded", "Failed")
        and (is_ready(pod) or service.spec.get("publishNotReadyAddresses", False))
    )


def is_ready(pod: Whole) -> bool:
    conditions = {each["type"]: each["status"] for each in pod.status.get("conditions", ())}
    return conditions.get("Ready") == "True" and pod.metadata.deletion_timestamp is None


def target_port(port: Mapping[str, Any], pod: Whole) -> int:
    """By number, else by the name that the pod gives to a port; 0 when it gives none such."""
    wanted: int | str = port.get("targetPort") or port["port"]
    if isinstance(wanted, int):
        return wanted
    named = (each for container in pod.spec["containers"] for each in container.get("ports", ()))
    return next((each["containerPort"] for each in named if each.get("name") == wanted), 0)


def _is_ours(pod: Whole) -> bool:
    return is_loopback(pod.status.get("podIP", ""))


def is_loopback(address: str) -> bool:
    """Also false for no address, and for the ``None`` of a headless Service."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


async def serve(client: Client, api: Address) -> None:
    """Keep the relay as the API says until SIGTERM or SIGINT; ``ready`` is printed after the first time."""
    loop, changed, stop = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    services, pods = informer_of(client, SERVICES, Whole), informer_of(client, PODS, Whole)
    services.on_change(lambda _old, _new: _notify(loop, changed))
    pods.on_change(lambda old, new: _notify(loop, changed) if _concerns(old, new) else None)
    for informer in (services, pods):
        informer.source.start()
    for informer in (services, pods):
        if not await asyncio.to_thread(informer.wait_synced, SYNC):
            raise TimeoutError(f"the API server listed no Services or pods within {SYNC:.0f} s")
    changed.set()
    keeping = loop.create_task(_keep(Relay(), services, pods, api, changed))
    await stop.wait()
    keeping.cancel()
    for informer in (services, pods):
        await asyncio.to_thread(informer.stop)


def _notify(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(changed.set)


def _concerns(old: Whole | None, new: Whole | None) -> bool:
    """Whether it is a pod of ours; the other nodes' pods come and go by the thousand."""
    return any(pod is not None and _is_ours(pod) for pod in (old, new))


async def _keep(
    relay: Relay, services: Informer[Whole], pods: Informer[Whole], api: Address, changed: asyncio.Event
) -> None:
    announced = False
    while True:
        await changed.wait()
        changed.clear()
        ours = list(filter(_is_ours, pods.list()))
        if await relay.follow(table(services.list(), ours, api)):
            asyncio.get_running_loop().call_later(LISTEN_AGAIN, changed.set)
        if not announced:
            print("ready", flush=True)
        announced = True


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.services", description=__doc__)
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, help="of someone who may list Services and pods"
    )
    arguments = parser.parse_args(words)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    asyncio.run(serve(client_of(arguments.kubeconfig), api_server(arguments.kubeconfig)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
