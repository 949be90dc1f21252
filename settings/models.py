"""All settings, with defaults and limits."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from settings.anycast_ip import AnycastIPSettings
from settings.certs import CertsSettings
from settings.cloud import CloudSettings
from settings.elasticity import ElasticitySettings
from settings.ingress_daemonset import IngressDaemonSetSettings
from settings.selector import LabelSelector, Requirement
from settings.values import Address, Duration, Model, Name, Period, Port, host_and_port

HEADER = ("drawbridge.io/v1", "DrawbridgeConfig")

Count = Annotated[int, Field(ge=1)]


class Health(Model):
    health_probe_bind_address: Address = ":8081"


class Metrics(Model):
    bind_address: Address = ":8080"


class Webhook(Model):
    port: Port = 9443
    cert_dir: Annotated[str, Field(min_length=1)] = "/etc/drawbridge/tls"
    threads: Annotated[int, Field(ge=1, le=1024)] = 512
    drain_period: Duration = 5.0


class LeaderElection(Model):
    leader_elect: bool = True
    resource_name: Name = "drawbridge"
    resource_namespace: Name = "drawbridge"
    lease_duration: Period = 15.0
    renew_deadline: Period = 10.0
    retry_period: Period = 2.0

    @model_validator(mode="after")
    def _each_period_fits_into_the_next(self) -> Self:
        """The rule of client-go: a leader gives up before another may begin, and retries before that."""
        self.check_shorter("renewDeadline", "leaseDuration")
        self.check_shorter("retryPeriod", "renewDeadline")
        return self


class Logging(Model):
    level: Literal["debug", "info", "warning", "error"] = "info"


class IPReservationSettings(Model):
    enabled: bool = True
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    calico_api_version: Literal["auto", "projectcalico.org/v3", "crd.projectcalico.org/v1"] = "auto"
    ip_reserve_max_count: Count = 300
    ip_reserve_time: Period = 2400.0
    ip_release_period: Period = 5.0
    give_back_after: Period = 120.0
    skip_when_owner_is_deleted: bool = True
    label_selector: LabelSelector = LabelSelector(
        match_expressions=(
            Requirement(key="statefulset.kubernetes.io/pod-name", operator="Exists"),
            Requirement(key="brokerId", operator="Exists"),
        )
    )
    # The records are an annotation, and Kubernetes limits an object's annotations to 256 KiB.
    segment_max_entries: Annotated[int, Field(ge=1, le=512)] = 64
    segment_max_age: Period = 600.0


class Settings(Model):
    api_version: Literal["drawbridge.io/v1"] = "drawbridge.io/v1"
    kind: Literal["DrawbridgeConfig"] = "DrawbridgeConfig"
    health: Health = Health()
    metrics: Metrics = Metrics()
    webhook: Webhook = Webhook()
    leader_election: LeaderElection = LeaderElection()
    logging: Logging = Logging()
    certs: CertsSettings = CertsSettings()
    cloud: CloudSettings = CloudSettings()
    ip_reservation: IPReservationSettings = IPReservationSettings()
    anycast_ip: Annotated[AnycastIPSettings, Field(alias="anycastIP")] = AnycastIPSettings()
    elasticity: ElasticitySettings = ElasticitySettings()
    ingress_daemonset: Annotated[IngressDaemonSetSettings, Field(alias="ingressDaemonSet")] = (
        IngressDaemonSetSettings()
    )

    @model_validator(mode="after")
    def _no_port_is_taken_twice(self) -> Self:
        ports = {
            "webhook.port": self.webhook.port,
            "health.healthProbeBindAddress": host_and_port(self.health.health_probe_bind_address)[1],
            "metrics.bindAddress": host_and_port(self.metrics.bind_address)[1],
        }
        if len(set(ports.values())) < len(ports):
            taken = ", ".join(f"{field} {port}" for field, port in ports.items())
            raise ValueError(f"a port is used twice ({taken}); give each its own")
        return self
