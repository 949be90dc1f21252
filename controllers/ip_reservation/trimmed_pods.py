"""What the leader keeps of each pod of the cluster: as much as reserving its addresses may need."""

from __future__ import annotations

import sys

import msgspec

from api.ip_reservation import DISRUPTION, RESERVE, RESERVE_FROM
from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM
from kube.compact import compact
from kube.types import MIRROR, Pod, PodSpec, PodStatus

KEPT = (MIRROR, RESERVE, RESERVE_FROM, SAME_ADDRESS_FROM, IP_ADDRS)
"""Annotations."""


def decode(encoded: msgspec.Raw) -> Pod:
    """MsgspecError when it cannot be read."""
    pod = _POD.decode(encoded)
    spec, status = pod.spec, pod.status
    return Pod(
        compact(pod.metadata, KEPT),
        PodSpec(sys.intern(spec.node_name), spec.host_network, sys.intern(spec.restart_policy)),
        PodStatus(
            phase=sys.intern(status.phase),
            reason=status.reason,
            pod_ip="" if status.pod_ips else status.pod_ip,
            pod_ips=status.pod_ips,
            conditions=tuple(each for each in status.conditions if each.type == DISRUPTION),
        ),
    )


_POD = msgspec.json.Decoder(Pod)
