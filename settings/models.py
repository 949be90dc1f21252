"""All settings, with defaults and limits."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from settings.anycast_ip import AnycastIPSettings
from settings.elasticity import ElasticitySettings
from settings.ingress_daemonset import IngressDaemonSetSettings
from settings.ip_reservation import IPReservationSettings
from settings.values import (
    HOST_AND_PORT,
    Address,
    CACertificates,
    Duration,
    Matching,
    Model,
    Name,
    Order,
    Percent,
    Period,
    Port,
    Region,
    port_of,
)

HEADER = ("drawbridge.io/v1", "DrawbridgeConfig")


class Health(Model):
    health_probe_bind_address: Address = ":8081"


class Metrics(Model):
    """With *authentication*, clients need a token of the cluster, and permission to read /metrics."""

    bind_address: Address = ":8080"
    authentication: bool = False


class Webhook(Model):
    """With *client_ca*, a client without a certificate of one of these CAs is refused in the TLS handshake."""

    port: Port = 9443
    cert_dir: Annotated[str, Field(min_length=1)] = "/etc/drawbridge/tls"
    threads: Annotated[int, Field(ge=1, le=1024, strict=True)] = 512
    drain_period: Duration = 5.0
    client_ca: Annotated[CACertificates, Field(alias="clientCA")] = ""


class LeaderElection(Model):
    leader_elect: bool = True
    resource_name: Name = "drawbridge"
    resource_namespace: Name = "drawbridge"
    lease_duration: Period = 15.0
    renew_deadline: Period = 10.0
    retry_period: Period = 2.0

    # The rule of client-go: a leader gives up before another may begin, and retries before that.
    relations: ClassVar = (Order(("retryPeriod", "renewDeadline", "leaseDuration")),)


class Logging(Model):
    level: Literal["debug", "info", "warning", "error"] = "info"


class SelfManaged(Model):
    """How long self-managed certificates last; *overlap* is also how far clocks may differ at their ends."""

    ca_validity: Period = 365 * 86400.0
    leaf_validity: Period = 90 * 86400.0
    renew_before: Period = 30 * 86400.0
    overlap: Period = 60.0

    # Else a new certificate would be renewed at once, again and again.
    relations: ClassVar = (Order(("overlap", "renewBefore", "leafValidity", "caValidity")),)


class CertsSettings(Model):
    """Only with self-managed do the controllers write the Secret and the webhook configurations."""

    mode: Literal["self-managed", "cert-manager", "files"] = "files"
    secret_name: Name = "drawbridge-webhook-tls"  # noqa: S105 - the name of a Secret, not its content
    service_name: Name = "drawbridge-webhook"
    configuration_name: Name = "drawbridge"
    self_managed: SelfManaged = SelfManaged()


_URL = Matching(
    f"(https?://{HOST_AND_PORT}/?)?", "is not the URL of a proxy; write for example http://proxy:3128"
)


def _proxy(value: object) -> object:
    if "@" in str(value):
        # The value is not repeated: messages are logged.
        raise ValueError("a password does not belong in this file; leave it out and set HTTPS_PROXY instead")
    return _URL.check(value)


class CloudSettings(Model):
    """Endpoints and credentials of Tencent Cloud; secrets are never in the file.

    *endpoint* is for every service; without it each has a name under *root_domain*.

    Keys come from the files in *credentials_dir*, else from TENCENTCLOUD_SECRET_ID, _SECRET_KEY and _TOKEN.
    """

    region: Region = ""
    endpoint: Annotated[
        str,
        Matching(
            f"({HOST_AND_PORT})?",
            "is not host or host:port; write for example vpc.example.com:8443, without https://",
        ),
    ] = ""
    root_domain: Annotated[
        str,
        Matching(
            r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+",
            "is not a domain; write for example internal.tencentcloudapi.com",
        ),
    ] = "tencentcloudapi.com"
    proxy: Annotated[
        str,
        BeforeValidator(_proxy),
        # One with a password is for the template to refuse, as Helm's own message would show it.
        WithJsonSchema({"type": "string", "pattern": rf"^({_URL.pattern}|[\s\S]*@[\s\S]*)$"}),
    ] = ""
    ca_file: str = ""
    credentials: Literal["auto", "static", "cvm-role", "tke-oidc"] = "auto"
    credentials_dir: str = ""
    cvm_role: str = ""
    call_timeout: Period = 30.0
    attempt_timeout: Period = 10.0
    # One call in ten is left for people at the console, who share the account's limits.
    rate_share: Percent = 90

    relations: ClassVar = (Order(("attemptTimeout", "callTimeout"), or_equal=True),)


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
            "health.healthProbeBindAddress": port_of(self.health.health_probe_bind_address),
            "metrics.bindAddress": port_of(self.metrics.bind_address),
        }
        if self.anycast_ip.enabled and (allow_list := self.anycast_ip.allow_list).is_served:
            ports["anycastIP.allowList.http.bindAddress"] = port_of(allow_list.http.bind_address)
        if len(set(ports.values())) < len(ports):
            taken = ", ".join(f"{field} {port}" for field, port in ports.items())
            raise ValueError(f"a port is used twice ({taken}); give each its own")
        return self
