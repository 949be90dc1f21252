"""`drawbridge convert-values`: the values of an original's chart, under our names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from cli.session import Command
from cli.simulate import leaves, put, values_of
from cli.value_names import ORIGINALS
from settings.load import CAPO_HEADER, CAPO_MOVED

Raw = Mapping[str, Any]
KEYS = "not printed: keep keys in a Secret of yours, and name it in cloud.existingSecret"
OF_EKLET = "of chart eklet, which takes the original's file as it is"


@dataclass(frozen=True)
class Original:
    """Its entries by our names, the reasons why others have none, and what switches our feature on."""

    renamed: Mapping[str, str]
    without: Mapping[str, str]
    enabled: str = ""


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _of(*sections: str) -> dict[str, str]:
    return {theirs: ours for theirs, ours in ORIGINALS.items() if theirs.startswith(sections)}


CAPO = Original(
    renamed={
        **_of("config.health", "config.metrics", "config.webhook", "config.ip"),
        **_same("replicaCount", "image.pullPolicy", "nameOverride", "fullnameOverride", "podAnnotations"),
        **_same("autoscaling", "nodeSelector", "tolerations", "config.leaderElectionEnable"),
        "image.pullSecrets": "imagePullSecrets",
        "resources": "webhook.resources",
    },
    without={
        "image.repository": "Capo's image has none of our programs",
        "image.tag": "it is Capo's version",
        "rbacImage": "there is no proxy before the metrics; metrics.authentication asks for a token",
        "namespace": "give it to Helm, by --namespace",
        "service": "the Service is always a ClusterIP on port 443",
        "podSecurityContext": "the defaults are stricter than Capo's",
        "securityContext": "the defaults are stricter than Capo's",
        "affinity": "replicas are spread by default",
    },
)
CAPO_FILE = Original(
    renamed={
        **{theirs: f"ipReservation.{ours}" for ours, theirs in CAPO_MOVED.items()},
        "ipReleasePeriod": "ipReservation.advanced.releasePeriod",
        **_same("health.healthProbeBindAddress", "metrics.bindAddress", "webhook.port"),
        "leaderElection.leaderElect": "config.leaderElectionEnable",
    },
    without={"leaderElection": "the chart names the Lease"},
)
AIA = Original(
    renamed={
        **_of("config.region", "config.aia", "config.node", "credential.clusterID"),
        "controller.replicaCount": "controllers.replicaCount",
        "controller.resources": "controllers.resources",
    },
    without={
        "credential.appID": "the keys identify the account",
        "credential.secretID": KEYS,
        "credential.secretKey": KEYS,
        "config.region.shortName": "it named the registry of the original's image",
        "config.aia.autoRelease": "an address is always released with its node",
        "controller.image": "the original's image has none of our programs",
        "controller": "nodes are reconciled as fast as the cloud's limits allow",
    },
    enabled="anycastIP.enabled",
)
TKE_RESILIENCE = Original(
    renamed={
        **_of("cloud.regionLong", "cloud.apiDomain"),
        **_same("cloud.subnets"),
        "eksAdmission.autoScaleEKS": "elasticity.switch.default",
        "eksAdmission.replicaCount": "controllers.replicaCount",
        "eksAdmission.nodeSelector": "nodeSelector",
        "eksAdmission.resources": "controllers.resources",
    },
    without={
        "eksAdmission.image": "the original's image has none of our programs",
        "scheduler": "the cluster's own scheduler is used",
        "cloud.secretID": f"{OF_EKLET}; elasticity needs no keys",
        "cloud.secretKey": f"{OF_EKLET}; elasticity needs no keys",
        **dict.fromkeys(("cloud.uniqueID", "cloud.appID", "cloud.ownerUIN"), OF_EKLET),
        **dict.fromkeys(("cloud.vpcID", "cloud.regionShort", "eklet"), OF_EKLET),
    },
    enabled="elasticity.enabled",
)
BY_NAME = {"capo": CAPO, "aia": AIA, "tke-resilience": TKE_RESILIENCE}
UNKNOWN = "the original's chart has no such value"


def converted(values: Raw, original: Original) -> tuple[dict[str, Any], dict[str, str]]:
    """Values of ours, and the entries that have no counterpart, each with the reason. What is empty is left out."""
    found: dict[str, Any] = {}
    left: dict[str, str] = {}
    if original.enabled:
        put(found, original.enabled, True)
    known = (*original.renamed, *original.without)
    for name, value in leaves(values, lambda name: not any(each.startswith(f"{name}.") for each in known)):
        if isinstance(value, Mapping):
            value = {key: part for key, part in value.items() if part is not None}
        ours = original.renamed.get(name)
        if value in (None, "", {}, []) or (ours == "config.leaderElectionEnable" and value is True):
            continue
        if ours is None:
            said = (why for each, why in original.without.items() if f"{name}.".startswith(f"{each}."))
            left[name] = next(said, UNKNOWN)
        else:
            put(found, ours, _switch(value) if ours == "elasticity.switch.default" else value)
    return found, left


def _switch(value: object) -> bool:
    """The original's default has quotes within its quotes."""
    return str(value).strip('"').lower() != "false"


@click.command(cls=Command)
@click.option("--from", "name", type=click.Choice([*BY_NAME]), required=True, help="Whose values they are.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def convert_values(name: str, file: Path) -> None:
    """Convert the values of an original's chart.

    Prints them under the names of Drawbridge's chart, and a comment for each entry that has no counterpart. For Capo,
    the file in its ConfigMap works, too. Keys are not printed. No cluster is needed.
    """
    values, original = values_of(file, "write it by helm get values RELEASE --all -o yaml"), BY_NAME[name]
    if (values.get("apiVersion"), values.get("kind")) == CAPO_HEADER:
        values = {key: part for key, part in values.items() if key not in ("apiVersion", "kind")}
        original = CAPO_FILE
    found, left = converted(values, original)
    for entry, why in left.items():
        click.echo(f"# {entry}: {why}")
    click.echo(yaml.safe_dump(found, sort_keys=False), nl=False)
