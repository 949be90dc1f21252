"""A node gets traffic only while all replicas of its Deployment are available and none is about to be replaced."""

from __future__ import annotations

from healthchecker.config import Config
from kube.types import ObjectMeta, Value, complete

KIND = "IngressDaemonSet"


class Metadata(ObjectMeta, frozen=True):
    generation: int = 0


class DeploymentSpec(Value, frozen=True):
    replicas: int = 1


class DeploymentStatus(Value, frozen=True):
    available_replicas: int = 0


class Deployment(Value, frozen=True):
    metadata: Metadata = Metadata()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


complete(Metadata, DeploymentSpec, DeploymentStatus, Deployment)


def fault_of(deployment: Deployment | None, config: Config) -> str | None:
    """Why the node must not get traffic, if it must not.

    Generations are not compared: annotating a Deployment raises its generation like an update does.
    """
    name = f"Deployment {config.deployment}"
    if deployment is None:
        return f"there is no {name}"
    if not _is_of(deployment.metadata, config):
        return f"{name} is not one of {KIND} {config.ingress_daemonset}"
    if deployment.metadata.deletion_timestamp is not None:
        return f"{name} is being deleted"
    if config.annotation in deployment.metadata.annotations:
        return f"{name} is to be updated, says its annotation {config.annotation}"
    return _shortage(name, deployment.status.available_replicas, deployment.spec.replicas)


def _is_of(metadata: ObjectMeta, config: Config) -> bool:
    # "a-b" on node "c" and "a" on node "b-c" have the same name.
    owner = metadata.controller
    return owner is not None and (owner.kind, owner.name) == (KIND, config.ingress_daemonset)


def _shortage(name: str, available: int, replicas: int) -> str | None:
    if replicas > 0 and available >= replicas:
        return None
    return f"{available} of {replicas} replicas of {name} are available"
