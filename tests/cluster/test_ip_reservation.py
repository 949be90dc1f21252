"""IP reservation through a real API server: TLS, RBAC, two webhook replicas and the controllers as processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from kube.errors import Conflict, NotFound
from kube.types import Pod
from lab import binaries
from lab.session import Lab
from tests.cluster import workloads
from tests.cluster.witness import witness
from tests.cluster.workloads import GROUPS, SECONDS, records
from webhook.ip_reservation import RESERVE


def test_the_record_says_for_whom_and_why(lab: Lab, group: str, redis: str) -> None:
    (pod,) = workloads.running_statefulset(lab, redis, 1)
    workloads.evict(lab, pod)

    held = records(lab, group)[pod.metadata.uid]

    assert (held.namespace, held.pod, held.node) == (redis, "redis-0", pod.spec.node_name)
    assert (held.owner, held.reason) == ("StatefulSet/redis", "evicted")


def dry_run(lab: Lab, namespace: str) -> None:
    pod = workloads.running_pod(lab, namespace, "a")
    lab.kubectl("delete", "pod", "a", "-n", namespace, "--dry-run=server")
    workloads.evict(lab, pod, deleteOptions={"dryRun": ["All"]})


def unselected(lab: Lab, namespace: str) -> None:
    workloads.running_pod(lab, namespace, "a", {"app": "nginx"})
    lab.client.delete(workloads.PODS, "a", namespace)


def host_network(lab: Lab, namespace: str) -> None:
    workloads.running_pod(lab, namespace, "a", hostNetwork=True)
    lab.client.delete(workloads.PODS, "a", namespace)


def no_ip(lab: Lab, namespace: str) -> None:
    workloads.create_pod(lab, namespace, "a", nodeSelector={"no-such": "node"})
    lab.client.delete(workloads.PODS, "a", namespace)


def finished(lab: Lab, namespace: str) -> None:
    pod = workloads.running_pod(lab, namespace, "a")

    def gone_as_it_ended() -> bool:
        """Not when kwok, a moment late, has said once more that the pod is running."""
        ended = workloads.patch_status(lab, pod, phase="Succeeded").metadata.resource_version
        try:
            lab.client.delete(workloads.PODS, "a", namespace, preconditions={"resourceVersion": ended})
        except Conflict:
            return False
        return True

    lab.wait(gone_as_it_ended, SECONDS, "the pod to be deleted as one that has ended")


def opted_out(lab: Lab, namespace: str) -> None:
    workloads.running_pod(lab, namespace, "a")
    lab.kubectl("annotate", "pod", "a", "-n", namespace, "drawbridge.io/reserve-ip=false")
    lab.client.delete(workloads.PODS, "a", namespace)


def unlabelled_namespace(lab: Lab, namespace: str) -> None:
    lab.kubectl("label", "namespace", namespace, "ip-reserve-")
    workloads.running_pod(lab, namespace, "a")
    lab.client.delete(workloads.PODS, "a", namespace)


def owner_deleted(lab: Lab, namespace: str) -> None:
    workloads.running_statefulset(lab, namespace, 2)
    lab.kubectl("delete", "statefulset", "redis", "-n", namespace)


@pytest.mark.parametrize(
    "go",
    [dry_run, unselected, host_network, no_ip, finished, opted_out, unlabelled_namespace, owner_deleted],
    ids=lambda each: each.__name__.replace("_", " "),
)
def test_nothing_is_written_for(lab: Lab, group: str, redis: str, go: Callable[[Lab, str], None]) -> None:
    go(lab, redis)
    if go is not dry_run:
        lab.wait(lambda: not workloads.pods_of(lab, redis), SECONDS, "the pods to be gone")
    workloads.settle(lab, group)

    assert [held for held in records(lab, group).values() if held.namespace == redis] == []


def test_a_repeated_deletion_changes_nothing(lab: Lab, group: str, redis: str) -> None:
    pod = workloads.running_pod(lab, redis, "a")
    lab.kubectl("patch", "pod", "a", "-n", redis, "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
    lab.client.delete(workloads.PODS, "a", redis)
    first = records(lab, group)[pod.metadata.uid]

    lab.client.delete(workloads.PODS, "a", redis)
    lab.client.delete(workloads.PODS, "a", redis, grace_seconds=0)

    assert records(lab, group)[pod.metadata.uid] == first
    lab.kubectl(
        "patch",
        "pod",
        "a",
        "-n",
        redis,
        "--type=json",
        "-p",
        '[{"op":"remove","path":"/metadata/finalizers"}]',
    )


def test_a_kubelet_eviction_is_reserved_late_and_says_so(lab: Lab, group: str, redis: str) -> None:
    pod = workloads.running_pod(lab, redis, "a")
    workloads.patch_status(lab, pod, phase="Failed", reason="Evicted")

    held = lab.wait(lambda: records(lab, group).get(pod.metadata.uid), SECONDS, "the address to be reserved")

    assert (held.cidr, held.late, held.reason) == (f"{pod.status.pod_ip}/32", True, "evicted by the kubelet")
    lab.wait(lambda: workloads.events(lab, redis, "IPReservedLate"), SECONDS, "the event")


def test_a_storm_is_shared_by_both_replicas_and_by_their_writes(lab: Lab, group: str, redis: str) -> None:
    pods = workloads.running_statefulset(lab, redis, 40)
    before = [
        workloads.sample(each, "drawbridge_admission_requests_total")
        for each in workloads.metrics(lab, "webhook")
    ]
    with witness(lab, GROUPS[group]) as seen:
        with ThreadPoolExecutor(20) as pool:
            deletions = [
                pool.submit(lab.client.delete, workloads.PODS, pod.metadata.name, redis) for pod in pods
            ]
        lab.wait(lambda: seen.gone(pods) == 40, SECONDS, "the pods to be gone")
        lab.wait(lambda: not seen.unreserved(pods), SECONDS, "each address to be seen reserved in time")

    assert [each.exception() for each in deletions] == [None] * 40
    after = [
        workloads.sample(each, "drawbridge_admission_requests_total")
        for each in workloads.metrics(lab, "webhook")
    ]
    assert len(after) == 2
    assert all(now > then for now, then in zip(after, before, strict=True))


def test_a_pod_that_is_deleted_by_force_has_one_record_though_each_replica_was_asked(
    lab_v3: Lab,
) -> None:
    """The API server validates such a deletion twice: by its cache, and by what is stored."""
    namespace = workloads.reserved_namespace(lab_v3.client, "t-by-force")
    names = [f"redis-{number}" for number in range(60)]
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda name: workloads.create_pod(lab_v3, namespace, name), names))
        uids = lab_v3.wait(lambda: running_uids(lab_v3, namespace, len(names)), SECONDS, "the pods to run")
        calls = asked(lab_v3)
        list(
            pool.map(
                lambda name: lab_v3.client.delete(workloads.PODS, name, namespace, grace_seconds=0), names
            )
        )

    def one_for_each() -> bool:
        found = sorted(
            each.uid for each in workloads.all_records(lab_v3, "v3") if each.namespace == namespace
        )
        return found == uids

    lab_v3.wait(one_for_each, SECONDS, "one record for each pod")
    assert asked(lab_v3) > calls + len(names), "no deletion was validated twice: this shows nothing"
    lab_v3.kubectl("delete", "namespace", namespace, "--wait=false")


def running_uids(lab: Lab, namespace: str, count: int) -> list[str]:
    pods = workloads.pods_of(lab, namespace)
    found = sorted(
        each.metadata.uid for each in pods if each.status.phase == "Running" and each.status.addresses
    )
    return found if len(found) == count else []


def asked(lab: Lab) -> float:
    return sum(
        workloads.sample(each, "drawbridge_admission_requests_total")
        for each in workloads.metrics(lab, "webhook")
    )


def test_a_late_reservation_in_a_namespace_that_is_being_deleted_is_told_on_the_segment(
    lab: Lab, group: str, redis: str
) -> None:
    pod = workloads.running_pod(lab, redis, "a")
    patch_pod(lab, pod, finalizers=["example.com/hold"], annotations={RESERVE: "false"})
    try:
        lab.kubectl("delete", "namespace", redis, "--wait=false")
        lab.wait(lambda: workloads.get_pod(lab, redis, "a").terminating, SECONDS, "the pod to terminate")
        patch_pod(lab, pod, annotations={RESERVE: "true"})

        held = lab.wait(lambda: records(lab, group).get(pod.metadata.uid), SECONDS, "the address to be held")
        [event] = lab.wait(lambda: told_of(lab, pod), SECONDS, "the event")
    finally:
        patch_pod(lab, pod, finalizers=None)

    about = event["involvedObject"]
    assert (held.late, about["kind"]) == (True, "IPReservation")
    segment = lab.client.get(GROUPS[group], about["name"])
    assert (about["uid"], held.cidr in segment["spec"]["reservedCIDRs"]) == (segment["metadata"]["uid"], True)


def patch_pod(lab: Lab, pod: Pod, **metadata: object) -> None:
    lab.client.patch(workloads.PODS, pod.metadata.name, {"metadata": metadata}, pod.metadata.namespace)


def told_of(lab: Lab, pod: Pod) -> list[dict[str, Any]]:
    """The late reservation of *pod*, where Events are about what stands in no namespace."""
    name = f"Pod {pod.metadata.namespace}/{pod.metadata.name} "
    return [
        each
        for each in workloads.events(lab, "default", "IPReservedLate")
        if each["message"].startswith(name)
    ]


@pytest.mark.parametrize("group", [pytest.param("v3", marks=pytest.mark.promise), "v1"])
class TestRelease:
    """The configuration is changed while all runs on; each test leaves it as it was."""

    def test_addresses_are_released_by_age(self, lab: Lab, group: str, redis: str) -> None:
        workloads.running_statefulset(lab, redis, 3)
        workloads.delete_collection(lab, redis)
        lab.wait(lambda: of(lab, group, redis), SECONDS, "addresses to be held")

        with workloads.configured(lab, config={"ipReserveTime": "2s"}):
            lab.kubectl("delete", "statefulset", "redis", "-n", redis)
            lab.wait(lambda: not records(lab, group), SECONDS, "every address to be released")

        # Their writers may still append to them, so they are deleted when that is over.
        segments = lab.client.list(GROUPS[group]).items
        assert segments
        assert [each["spec"]["reservedCIDRs"] for each in segments] == [[]] * len(segments)

    def test_the_oldest_are_released_when_too_many_are_held(self, lab: Lab, group: str, redis: str) -> None:
        pods = [workloads.running_pod(lab, redis, f"p{n}") for n in range(5)]
        with workloads.configured(lab, config={"ipReserveMaxCount": 2}):
            for pod in pods:
                lab.client.delete(workloads.PODS, pod.metadata.name, redis)
                await_gone(lab, redis, pod.metadata.name)
            lab.wait(lambda: len(of(lab, group, redis)) == 2, SECONDS, "all but two to be released")

        assert set(of(lab, group, redis)) == {pod.metadata.uid for pod in pods[-2:]}


def of(lab: Lab, group: str, namespace: str) -> list[str]:
    return [uid for uid, held in records(lab, group).items() if held.namespace == namespace]


def await_gone(lab: Lab, namespace: str, name: str) -> None:
    lab.wait(lambda: not exists(lab, namespace, name), SECONDS, f"pod {namespace}/{name} to be gone")


def exists(lab: Lab, namespace: str, name: str) -> bool:
    try:
        workloads.get_pod(lab, namespace, name)
    except NotFound:
        return False
    return True


@pytest.mark.promise
def test_a_bad_configuration_is_refused_and_the_last_good_one_stays(lab_v3: Lab) -> None:
    lab, redis = lab_v3, workloads.reserved_namespace(lab_v3.client, "t-bad-configuration")
    good = lab.kubectl(
        "get", "configmap", "drawbridge-config", "-n", "drawbridge", "-o", "jsonpath={.data.config\\.yaml}"
    ).stdout
    bad = good.replace("ipReserveTime:", "ipReserveTimes:")
    assert bad != good
    try:
        write_configuration(lab, bad)
        lab.wait(lambda: reload_states(lab) == {0.0}, SECONDS, "every process to refuse it")
        lab.wait(lambda: workloads.events(lab, "drawbridge", "ConfigurationRefused"), SECONDS, "the event")
        (message, *_) = {
            event["message"] for event in workloads.events(lab, "drawbridge", "ConfigurationRefused")
        }
        assert "ipReservation.ipReserveTimes" in message
        assert "did you mean ipReserveTime?" in message
        pod = workloads.running_pod(lab, redis, "a")
        lab.client.delete(workloads.PODS, "a", redis)
        assert pod.metadata.uid in records(lab, "v3")
    finally:
        write_configuration(lab, good)
    lab.wait(lambda: reload_states(lab) == {1.0}, SECONDS, "every process to apply it")


def write_configuration(lab: Lab, text: str) -> None:
    """As Helm applies it: its next upgrade would meet a field that is somebody else's."""
    live = json.loads(
        lab.kubectl("get", "configmap", "drawbridge-config", "-n", "drawbridge", "-o", "json").stdout
    )
    metadata = {key: live["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    wanted = {key: live[key] for key in ("apiVersion", "kind")} | {"metadata": metadata}
    document = json.dumps(wanted | {"data": {"config.yaml": text}})
    lab.kubectl("apply", "--server-side", "--field-manager=helm", "-f", "-", stdin=document)


def reload_states(lab: Lab) -> set[float]:
    scrapes = workloads.metrics(lab, "webhook") + workloads.metrics(lab, "controllers")
    return {workloads.sample(each, "drawbridge_config_last_reload_successful") for each in scrapes}


def test_calicos_own_allocator_keeps_off_a_held_address_and_gives_it_after_its_release(lab_v1: Lab) -> None:
    lab, redis = lab_v1, workloads.reserved_namespace(lab_v1.client, "t-allocator")
    pod = workloads.running_pod(lab, redis, "a")
    lab.client.delete(workloads.PODS, "a", redis)
    await_gone(lab, redis, "a")
    pool = ip_network(f"{pod.status.pod_ip}/29", strict=False)
    ipam(lab, "pool", str(pool), "--block-size", "29")

    assigned = ipam(lab, "assign", "8", "--node", pod.spec.node_name)

    assert pod.status.pod_ip not in json.dumps(assigned)
    with workloads.configured(lab, config={"ipReserveTime": "1s"}):
        lab.wait(lambda: pod.metadata.uid not in records(lab, "v1"), SECONDS, "the address to be released")
    # All that is free: addresses of other tests' pods may have been held in this pool, and released now.
    assert pod.status.pod_ip in json.dumps(ipam(lab, "assign", "8", "--node", pod.spec.node_name))


def ipam(lab: Lab, *words: str) -> Any:
    program: Path = binaries.ensure("calico-ipam")["calico-ipam"]
    command = [str(program), *words, "--kubeconfig", str(lab.kubeconfig)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
