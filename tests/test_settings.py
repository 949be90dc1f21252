"""The configuration file: what it means, how it is refused, and how a running process follows it."""

import errno
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from certs.issue import new_ca, new_leaf
from settings import LabelSelector, Settings, SettingsError, config_path, load, parse
from settings.file import NEEDS_RESTART, SettingsFile, changed_fields, fingerprint
from settings.values import seconds
from tests.certificates import of_version
from tests.facts import SETTINGS
from tests.metrics import sample

SPAN = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
HEADER = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\n"
CAPO = """\
apiVersion: config.capo.io/v1
kind: CapoConfig
health:
  healthProbeBindAddress: ":8081"
metrics:
  bindAddress: ":8080"
webhook:
  port: 9443
leaderElection:
  leaderElect: true
  resourceName: capo
  resourceNamespace: ip-reserve
ipReserveMaxCount: 400
ipReserveTime: 40m
ipReleasePeriod: 5s
labelSelector:
  matchExpressions:
  - key: statefulset.kubernetes.io/pod-name
    operator: Exists
  - key: brokerId
    operator: Exists
"""
CA = new_ca("clients", *SPAN).certificate.decode()


def ip(**fields: object) -> Settings:
    return Settings.model_validate({"ipReservation": fields})


def problems(text: str | bytes) -> str:
    with pytest.raises(SettingsError) as caught:
        parse(text)
    return str(caught.value)


# What a file means


def test_the_header_alone_asks_for_all_defaults() -> None:
    assert parse(HEADER) == Settings()


def test_a_capo_config_is_accepted_as_it_stands_and_says_what_our_defaults_are() -> None:
    found, ours = parse(CAPO), Settings()
    assert (found.health, found.metrics, found.webhook) == (ours.health, ours.metrics, ours.webhook)
    assert found.ip_reservation == ip(maxCount=400).ip_reservation
    assert ours.ip_reservation.max_count == 300
    assert found.leader_election.resource_name == "capo"
    assert found.leader_election.resource_namespace == "ip-reserve"


def test_the_defaults_are_those_of_the_originals() -> None:
    found = Settings()
    assert not found.anycast_ip.enabled
    assert found.cloud.root_domain == "tencentcloudapi.com"
    assert (found.elasticity.enabled, found.elasticity.local_replicas) == (False, None)
    assert (found.elasticity.switch.namespace, found.elasticity.switch.name) == ("kube-system", "eks-config")
    assert found.elasticity.excluded_namespaces == ("kube-system", "tke-eni-ip-webhook")
    assert not found.ingress_daemonset.enabled


def test_every_field_can_be_set() -> None:
    text = """\
apiVersion: drawbridge.io/v1
kind: DrawbridgeConfig
health: {healthProbeBindAddress: "127.0.0.1:1081"}
metrics: {bindAddress: "[::1]:1080", authentication: true}
webhook: {port: 10250, certDir: /tls, threads: 8, drainPeriod: 0s, clientCA: "%s"}
leaderElection: {leaderElect: false, resourceName: a, resourceNamespace: b,
  leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 1s}
logging: {level: debug}
certs: {mode: self-managed, secretName: a, serviceName: b, configurationName: c,
  selfManaged: {caValidity: 9h, leafValidity: 8h, renewBefore: 7h, overlap: 6s}}
cloud: {region: ap-hongkong, endpoint: "127.0.0.1:8080", rootDomain: internal.tencentcloudapi.com,
  proxy: "http://proxy:3128", caFile: /ca.pem, credentials: static, credentialsDir: /keys, cvmRole: role,
  callTimeout: 20s, attemptTimeout: 5s, rateShare: 50%%}
ipReservation:
  enabled: false
  failurePolicy: Ignore
  calicoApiVersion: crd.projectcalico.org/v1
  duration: 1h30m
  maxCount: 1
  maxFinished: 2
  releasePeriod: 300ms
  giveBackAfter: 3m
  skipWhenOwnerIsDeleted: false
  workloadOptIn: true
  sameAddress: {enabled: true, timeout: 30s}
  standing: {enabled: false, max: 1}
  pools: {enabled: true}
  maxPoolShare: 20%%
  maxPerNamespace: 7
  labelSelector:
    matchLabels: {app: redis}
anycastIP: {enabled: true, clusterID: cls-abc, nodeLabels: {a: b}, addressType: EIP, bandwidth: 5,
  internetChargeType: BANDWIDTH_PACKAGE, bandwidthPackageID: bwp-1, tags: {c: d}, releaseOnLabelRemoval: true,
  repair: false, whenExhausted: release, resyncPeriod: 1m,
  reverseReconcile: {enabled: false, mode: release, period: 1m, grace: 2m, maxPerRound: 1},
  addresses: [{nodeSelector: {a: b}, bandwidth: 5}],
  egressCheck: {enabled: true, url: "http://a/", image: a, imagePullPolicy: Never, timeout: 1m},
  pool: {retain: {enabled: true, count: 1, age: 1h}, minIdle: 1, adopt: {a: b}},
  allowList: {enabled: true, configMap: a, announceBefore: 1m, http: {enabled: true, bindAddress: ":9"}},
  podAddress: {enabled: true}}
elasticity: {enabled: true, openGates: true, gateFallbackAfter: 2m,
  switch: {namespace: a, name: b, default: false}, localOptOut: true, localReplicas: 1, percentages: true,
  placement: pin, schedulerName: c,
  excludedNamespaces: [d], maxSuperPods: {total: 2, perNamespace: 1, budgets: [{maxPods: 0}]}, scaleInOrder: false,
  homeFailover: {enabled: true, homeAfter: 1m},
  returnHome: {enabled: true, after: 1m, interval: 1s, maxAtOnce: 2},
  subnets: [{id: subnet-1, zone: ap-hongkong-1}], region: ap-hongkong,
  resolvConf: nameserver 10.0.0.2}
ingressDaemonSet: {enabled: true,
  healthChecker: {image: a, imagePullPolicy: Never, resources: {limits: {cpu: 10m}}, clusterRole: a},
  detachmentReminder: 1m, resyncPeriod: 1m, prometheus: {url: "http://a:9090", tokenFile: /a, caFile: /b},
  clb: {enabled: true, loadBalancers: [{id: lb-a}]}}
"""
    settings = parse(text % CA.replace("\n", "\\n"))
    changed = [f"{name}." for name in changed_fields(Settings(), settings)]
    kept = {name for name in SETTINGS if not any(each.startswith(f"{name}.") for each in changed)}
    assert kept == {"apiVersion", "kind", "anycastIP.anycastZone"}  # the last goes with no other addressType
    assert (settings.ip_reservation.duration, settings.ip_reservation.release_period) == (5400, 0.3)


DURATIONS = {
    "40m": 2400,
    "1h30m": 5400,
    "300ms": 0.3,
    "1.5h": 5400,
    ".5s": 0.5,
    "5.ms": 0.005,
    "719h59m60s": 2592000,
    "999999h9999999m999999999s999999999.999ms": 5200996338.999999,
    "0s": 0,
}


@pytest.mark.parametrize(("text", "expected"), DURATIONS.items())
def test_durations_are_read_as_go_writes_them(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("value", ["40x", "40", "", "m", "-5s", "5 s", "1h 30m", 40, 4.5, None, "\u0665s"])
def test_what_is_no_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write for example 40m or 1h30m"):
        seconds(value)


@pytest.mark.parametrize(
    ("environ", "path"),
    [({"DRAWBRIDGE_CONFIG": "/a/b.yaml"}, "/a/b.yaml"), ({}, "/etc/drawbridge/config.yaml")],
)
def test_the_environment_says_where_the_file_is(environ: dict[str, str], path: str) -> None:
    assert config_path(environ) == Path(path)


# How a file is refused

SUBNETS = "elasticity: {subnets: [%s]}"
ADDRESSES = "anycastIP: {addresses: [%s]}"
HOURS = "elasticity: {maxSuperPods: {budgets: [{maxPods: 2, hours: [{%s}]}]}}"
SELECT = "ipReservation: {labelSelector: {matchExpressions: [{%s}]}}"
BAD = {
    "ipReservation: {duration: 40x}": "ipReservation.duration: '40x' is not a duration",
    "ipReservation: {releasePeriod: 0s}": "'0s' is no time at all; write a duration above zero",
    "ipReservation: {maxCount: 0}": "maxCount: 0 is refused: input should be greater",
    "ipReservation: {maxCount: true}": "maxCount: True is refused: input should be a valid integer",
    "webhook: {threads: yes}": "threads: True is refused: input should be a valid integer",
    "anycastIP: {bandwidth: yes}": "bandwidth: True is refused: input should be a valid integer",
    "anycastIP: {pool: {minIdle: '5'}}": "minIdle: '5' is refused: input should be a valid integer",
    "elasticity: {maxSuperPods: {budgets: [{maxPods: no}]}}": (
        "budgets[0].maxPods: False is refused: input should be a valid integer"
    ),
    "ipReservation: {maxCont: 4}": "maxCont: unknown field; did you mean maxCount?",
    "ipReservation: {ipReserveTime: 4m}": "ipReserveTime: unknown field; known here are",
    "ipReservation: {maxPoolShare: 50}": "maxPoolShare: 50 is not a percentage; write one from",
    "ipReservation: {maxPerNamespace: 0}": "maxPerNamespace: 0 is refused: input should be greater",
    "elasticity: {maxSuperPods: {total: 0}}": "total: 0 is refused: input should be greater",
    "anycastIP: {bandwidth: 0}": "bandwidth: 0 is refused: input should be greater",
    "ipReserveTime: 4m": "ipReserveTime: unknown field; did you mean ipReservation?",
    "xyz: 1": "xyz: unknown field; known here are apiVersion, kind, health",
    "webhook: 9443": "webhook: 9443 is not a mapping of fields",
    "webhook:": "webhook: None is not a mapping of fields",
    "webhook: {port: 70000}": "webhook.port: 70000 is refused: input should be less",
    "metrics: {bindAddress: 8080}": "metrics.bindAddress: 8080 is not an address to listen on",
    'metrics: {bindAddress: ":0"}': "metrics.bindAddress: ':0' is not an address",
    'metrics: {bindAddress: "::1:80"}': "metrics.bindAddress: '::1:80' is not",
    "webhook: {port: 8080}": "a port is used twice (webhook.port 8080, health",
    "leaderElection: {renewDeadline: 15s}": "renewDeadline (15s) must be shorter than leaseDuration",
    "leaderElection: {retryPeriod: 12s}": "retryPeriod (12s) must be shorter than renewDeadline",
    "leaderElection: {resourceName: Cap_o}": "'Cap_o' is not the name of an object",
    "ipReservation: {failurePolicy: fail}": "'fail' is refused: input should be 'Fail' or 'Ignore'",
    SELECT % "key: a, operator: Is": "matchExpressions[0].operator: 'Is' is refused: input should be",
    SELECT % "key: a, operator: In": "matchExpressions[0]: operator In of key 'a' needs values",
    SELECT % "key: a, operator: Exists, values: [b]": "Exists of key 'a' takes no values",
    SELECT % "key: a, operator: Exists, value: [b]": "[0].value: unknown field; did you",
    SELECT % "key: a": "matchExpressions[0].operator: is missing",
    "ipReservation: {labelSelector: {matchLabels: {brokerId: 1}}}": "brokerId: 1 is not text; put it in quotes",
    "webhook: {port: 1, port: 2}": "line 3: port stands here a second time",
    "webhook: {port: 1": "line 4: ",
    "---\na: 1": "but found another document",
    "anycastIP: {enabled: true}": "clusterID is empty",
    "anycastIP: {clusterID: prod}": "anycastIP.clusterID",
    "anycastIP: {addressType: EIP, anycastZone: ANYCAST_ZONE_GLOBAL}": "only an AnycastEIP",
    "anycastIP: {nodeLabels: {}}": "anycastIP.nodeLabels",
    "anycastIP: {nodeLabels: {drawbridge.io/anycast-ip: bound}}": "which Drawbridge writes itself: name another label",
    ADDRESSES % "{nodeSelector: {drawbridge.io/anycast-ip: none}, bandwidth: 5}": (
        "addresses[0]: nodeSelector has drawbridge.io/anycast-ip, which Drawbridge writes itself"
    ),
    "anycastIP: {egressCheck: {url: ip.example.com}}": "anycastIP.egressCheck.url: 'ip.example.com' is not the URL",
    "anycastIP: {egressCheck: {url: 'https://user@ip.example.com'}}": "is not the URL of a service",
    "anycastIP: {egressCheck: {enabled: true, url: 'https://ip.example.com'}}": (
        "enabled is true, but image is empty"
    ),
    "anycastIP: {egressCheck: {enabled: true, image: a}}": (
        "enabled is true, but url is empty: give the URL of a service of yours that answers with its caller's address"
    ),
    'anycastIP: {reverseReconcile: {mode: "off"}}': "off is no mode; to search for no orphans, set enabled to false",
    "anycastIP: {reverseReconcile: {mode: off}}": "off is no mode; to search for no orphans, set enabled to false",
    "anycastIP: {pool: {retain: {count: 0}}}": "count: 0 is refused: input should be greater",
    ADDRESSES % "{bandwidth: 5}": "anycastIP.addresses[0].nodeSelector",
    ADDRESSES % "{nodeSelector: {}, bandwidth: 5}": "anycastIP.addresses[0].nodeSelector",
    ADDRESSES % "{nodeSelector: {a: b}}": "addresses[0]: sets nothing",
    ADDRESSES % "{nodeSelector: {a: b}, bandwidth: 5}, {nodeSelector: {a: b, c: d}, bandwidth: 6}": (
        "addresses[1]: nodeSelector selects only nodes that an entry before it selects"
    ),
    ADDRESSES % "{nodeSelector: {tke.cloud.tencent.com/need-aia-ip: 'no'}, bandwidth: 5}": (
        "addresses[0]: nodeSelector wants another value of tke.cloud.tencent.com/need-aia-ip than nodeLabels"
    ),
    ADDRESSES
    % "{nodeSelector: {a: b}, bandwidthPackageID: bwp-1}": "needs internetChargeType BANDWIDTH_PACKAGE",
    "anycastIP: {addressType: EIP, internetChargeType: TRAFFIC_POSTPAID_BY_HOUR,"
    " addresses: [{nodeSelector: {a: b}, bandwidth: 200}]}": "allows 100 at most for an EIP",
    "anycastIP: {allowList: {configMap: Allow_List}}": (
        "anycastIP.allowList.configMap: 'Allow_List' is not the name of an object"
    ),
    "anycastIP: {enabled: true, clusterID: cls-1, allowList: {enabled: true, http: {enabled: true,"
    ' bindAddress: ":8080"}}}': "a port is used twice (webhook.port 9443, health",
    # A scheme would become part of the signed host, a path breaks signatures.
    'cloud: {endpoint: "http://127.0.0.1:8080"}': (
        "cloud.endpoint: 'http://127.0.0.1:8080' is not host or host:port;"
        " write for example vpc.example.com:8443, without https://"
    ),
    "cloud: {endpoint: host/path}": "'host/path' is not host or host:port",
    "cloud: {region: hk}": "cloud.region: 'hk' is not a region; write its long name",
    "cloud: {rootDomain: 'https://x.com'}": "cloud.rootDomain: 'https://x.com' is not a domain",
    "cloud: {proxy: proxy}": "cloud.proxy: 'proxy' is not the URL of a proxy",
    "cloud: {rateShare: 0.9}": "cloud.rateShare: 0.9 is not a percentage; write one",
    "cloud: {attemptTimeout: 31s}": "attemptTimeout (31s) must be no longer than callTimeout (30s)",
    "cloud: {secretID: x}": "cloud.secretID: unknown field",
    "elasticity: {localReplicas: -1}": "localReplicas: -1",
    "elasticity: {percentages: true, localReplicas: 101%}": "'101%' is neither a number nor a percentage",
    "elasticity: {localReplicas: 30%}": "localReplicas is 30%: set percentages to true, or write a number",
    "elasticity: {maxSuperPods: {budgets: [{namespaces: [shop]}]}}": "budgets[0].maxPods: is missing",
    "elasticity: {maxSuperPods: {budgets: [{maxPods: 1, labels: {a b: c}}]}}": "is not the name of a label",
    HOURS % "start: 20:00, duration: 1m": (
        "budgets[0].hours[0].start: 1200 is not a time; write hours and minutes in quotes, such as"
    ),
    HOURS % 'start: "24:00", duration: 1m': "hours[0].start: '24:00' is not a time",
    HOURS % 'start: "20:00"': "hours[0].duration: is missing",
    HOURS % 'start: "20:00", duration: 59s': "duration: '59s' is not between 1m and 168h, a week; write for",
    HOURS % 'start: "20:00", duration: 168h1s': "duration: '168h1s' is not between",
    HOURS % 'start: "20:00", duration: 1m, timeZone: Moon/Crater': (
        "hours[0].timeZone: 'Moon/Crater' is not known; write one of the IANA database, such as Europe/Berlin"
    ),
    HOURS % 'start: "20:00", duration: 1m, timeZone: ../etc': "timeZone: '../etc' is not known; write",
    HOURS % 'start: "20:00", duration: 1m, timeZone: Europe': "timeZone: 'Europe' is not known; write",
    HOURS % 'start: "20:00", duration: 1m, days: [Monday]': "days[0]: 'Monday' is refused: input should be",
    "elasticity: {maxSuperPods: {budgets: [{maxPods: 2, hours: nights}]}}": "hours: 'nights' is not a list",
    "ingressDaemonSet: {healthChecker: {resources: {a: 1}}}": "unknown field; known here are requests, limits, claims",
    SUBNETS % "{id: vpc-1, zone: ap-x-1}": (
        "subnets[0].id: 'vpc-1' is not the id of a subnet; write for example subnet-"
    ),
    SUBNETS % "{id: subnet-1, zone: a-1}, {id: subnet-1, zone: a-2}": "subnets names subnet-1 more than once",
    SUBNETS % "{id: subnet-1, zone: a-1, tier: 0}": "subnets[0].tier: 0",
    "elasticity: {resolvConf: 'nameservers 10.0.0.2'}": "'nameservers 10.0.0.2' is no resolv.conf; a line begins",
    "ingressDaemonSet: {prometheus: {url: 'prometheus:9090'}}": "url: 'prometheus:9090' is no URL that can be asked",
    "ingressDaemonSet: {prometheus: {tokenFile: token}}": "tokenFile: 'token' is not the absolute path of a file",
}
ACCEPTED = (
    'cloud: {endpoint: "vpc.example.com"}',
    'cloud: {endpoint: "[::1]:80"}',
    'cloud: {endpoint: ""}',
    "elasticity: {percentages: true, localReplicas: 30%}",
    "elasticity: {maxSuperPods: {budgets: [{maxPods: 2, hours: []}]}}",
    HOURS % 'start: "20:00", duration: 12h, days: [Mon, Sun], timeZone: Europe/Berlin',
    "anycastIP: {enabled: true, clusterID: cls-1, anycastZone: ANYCAST_ZONE_GLOBAL}",
    'elasticity: {resolvConf: "# ours\\nnameserver 4.4.4.4\\n\\n  nameserver 8.8.8.8\\n"}',
)
UNKNOWN = {
    "empty": ("", "the document is empty; write at least apiVersion and kind"),
    "a list": ("- 1\n", "the document is a list, not a mapping"),
    "no header": ("a: 1\n", "apiVersion, kind: None and None are unknown; write apiVersion: drawbridge"),
    "another kind": ("apiVersion: v1\nkind: ConfigMap\n", "'v1' and 'ConfigMap' are unknown"),
    "not UTF-8": (b"a: \xff", ""),
    "too deep": ("a: " + "[" * 10_000, "recursion"),
    "both forms": (CAPO + "ipReservation: {}\n", "ipReservation: not a field of a CapoConfig"),
    "Capo's names for Capo's file": (CAPO.replace("40m", "40x"), "ipReserveTime: '40x' is not a duration"),
    "a typing error in Capo's file": (
        CAPO.replace("ReserveTime", "ReserveTme"),
        "did you mean ipReserveTime?",
    ),
}


@pytest.mark.parametrize(("fields", "message"), BAD.items(), ids=BAD)
def test_a_bad_file_is_refused_with_the_place_and_the_way_out(fields: str, message: str) -> None:
    assert message in problems(HEADER + fields + "\n")


@pytest.mark.parametrize(("text", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_document_is_refused(text: str | bytes, message: str) -> None:
    assert message in problems(text)


@pytest.mark.parametrize("given", ACCEPTED)
def test_what_looks_odd_may_be_right(given: str) -> None:
    parse(f"{HEADER}{given}\n")


def test_the_password_of_a_proxy_is_refused_and_not_repeated() -> None:
    said = problems(f'{HEADER}cloud: {{proxy: "http://user:hidden@proxy:3128"}}')
    assert "HTTPS_PROXY" in said
    assert "hidden" not in said


ISSUER = new_ca("clients", *SPAN)
CLIENT = new_leaf(ISSUER, ["kube-apiserver"], [], *SPAN)


@pytest.mark.parametrize(
    ("pem", "message"),
    [
        pytest.param("a.pem", "is not PEM (", id="the path of a file"),
        pytest.param(CA[:200], "is not PEM (", id="cut off"),
        pytest.param(of_version(CA, 102), "is not PEM (", id="of a version that no certificate has"),
        pytest.param(CA + CA.replace("M", "?"), "is not PEM (", id="a second one that is broken"),
        pytest.param(CA + CA[:200], "is not PEM (1 of 2", id="a second one that is cut off"),
        pytest.param(CA + CLIENT.certificate.decode(), "CN=kube-apiserver is not a CA", id="a client's"),
        pytest.param(CA + CLIENT.key.decode(), "contains a private key", id="a key, which is a secret"),
    ],
)
def test_client_ca_takes_certificates_of_cas_alone_and_is_not_repeated(pem: str, message: str) -> None:
    said = problems(f"{HEADER}webhook: {{clientCA: {json.dumps(pem)}}}")
    assert said.startswith(f"webhook.clientCA: {message}")
    assert max(pem.split(), key=len) not in said


@pytest.mark.parametrize("blank", ["\u2028", "\u00a0", "\v"])
def test_client_ca_that_is_blank_to_python_alone_is_refused_as_by_the_chart(blank: str) -> None:
    said = problems(f"{HEADER}webhook: {{clientCA: {json.dumps(blank)}}}")
    assert said.startswith("webhook.clientCA: is not PEM (0 of 0")


@pytest.mark.parametrize("pem", ["", " \n", CA, f"# \u00f6urs\n{CA}\n{ISSUER.certificate.decode()}"])
def test_client_ca_takes_several_certificates_or_none(pem: str) -> None:
    parse(f"{HEADER}webhook: {{clientCA: {json.dumps(pem)}}}")


def test_all_problems_are_reported_at_once() -> None:
    text = HEADER + "webhook: {port: 0}\nipReservation: {duration: x, enabld: true}\n"
    with pytest.raises(SettingsError) as caught:
        parse(text)
    assert len(caught.value.problems) == 3
    assert str(caught.value) == "\n".join(caught.value.problems)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yaml cannot be read: No such file"):
        load(tmp_path / "none.yaml")


def test_a_selector_in_the_file_takes_the_place_of_the_default_one() -> None:
    selector = ip(labelSelector={"matchLabels": {"app": "redis"}}).ip_reservation.label_selector
    assert selector == LabelSelector(match_labels={"app": "redis"})
    assert Settings().ip_reservation.label_selector.match_expressions


# Following a file


def write(path: Path, *fields: str) -> None:
    # In one step, as the kubelet does: a watch must not see half of it.
    new = path.with_name("new")
    new.write_text(HEADER + "\n".join(fields) + "\n")
    new.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    result = tmp_path / "config.yaml"
    write(result)
    return result


def test_a_changed_file_is_applied_and_reported(path: Path) -> None:
    calls: list[Settings] = []
    file = SettingsFile(path, on_change=calls.append)
    applied = sample("drawbridge_config_reloads_total", result="applied")
    write(path, "ipReservation: {maxCount: 7}")
    with capture_logs() as logs:
        file.poll()
        file.poll()
    assert file.current.ip_reservation.max_count == 7
    assert calls == [file.current]
    assert [entry["fields"] for entry in logs] == [["ipReservation.maxCount"]]
    assert sample("drawbridge_config_reloads_total", result="applied") == applied + 1
    assert sample("drawbridge_config_hash") == fingerprint(file.current) != fingerprint(Settings())


def test_a_bad_file_is_refused_and_the_last_good_settings_stay(path: Path) -> None:
    refused: list[SettingsError] = []
    file = SettingsFile(path, on_refused=refused.append)
    write(path, "ipReservation: {duration: 40x}")
    with capture_logs() as logs:
        file.poll()
        file.poll()
    assert file.current == Settings()
    assert [str(error) for error in refused] == [
        "ipReservation.duration: '40x' is not a duration; write for example 40m or 1h30m"
    ]
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert sample("drawbridge_config_last_reload_successful") == 0


def test_a_file_that_vanishes_is_refused_once_and_found_again(path: Path) -> None:
    refused: list[SettingsError] = []
    file = SettingsFile(path, on_refused=refused.append)
    path.unlink()
    file.poll()
    file.poll()
    assert len(refused) == 1
    write(path, "logging: {level: debug}")
    file.poll()
    assert file.current.logging.level == "debug"


def test_a_config_map_that_the_kubelet_swaps_is_seen_with_size_and_time_unchanged(tmp_path: Path) -> None:
    for version, count in (("v1", 3), ("v2", 4)):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "config.yaml", f"ipReservation: {{maxCount: {count}}}")
        os.utime(tmp_path / version / "config.yaml", ns=(0, 0))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    file = SettingsFile(tmp_path / "config.yaml")
    (tmp_path / "new").symlink_to("v2")
    (tmp_path / "new").rename(tmp_path / "..data")
    file.poll()
    assert file.current.ip_reservation.max_count == 4


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    file = SettingsFile(path)
    write(path, "ipReservation: {maxCount: 4}")
    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", fail)
        file.poll()
    file.poll()
    assert file.current.ip_reservation.max_count == 4


def test_changes_that_need_a_restart_are_named_in_a_warning(path: Path) -> None:
    file = SettingsFile(path)
    write(path, "webhook: {port: 10250, drainPeriod: 1s}", "leaderElection: {resourceName: b}")
    with capture_logs() as logs:
        file.poll()
    warning = next(entry for entry in logs if entry["log_level"] == "warning")
    assert warning["fields"] == ["leaderElection.resourceName", "webhook.drainPeriod", "webhook.port"]


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        pytest.param(
            "anycastIP: {allowList: {http: {enabled: true}}}",
            "anycastIP: {allowList: {enabled: true, http: {enabled: true}}}",
            ["anycastIP.allowList.enabled"],
            id="an allow-list that is to be served",
        ),
        pytest.param("", "anycastIP: {allowList: {enabled: true}}", [], id="one that is not served"),
        pytest.param("", "certs: {serviceName: gate}", [], id="the name in the next certificate"),
    ],
)
def test_a_change_needs_a_restart_when_nothing_else_applies_it(
    path: Path, before: str, after: str, named: list[str]
) -> None:
    write(path, before)
    file = SettingsFile(path)
    write(path, after)
    with capture_logs() as logs:
        file.poll()
    warnings = [each["fields"] for each in logs if each["log_level"] == "warning"]
    assert warnings == ([named] if named else [])


def test_what_needs_a_restart_is_a_field_that_there_is() -> None:
    assert [start for start in NEEDS_RESTART if not any(name.startswith(start) for name in SETTINGS)] == []


def test_the_watch_goes_on_after_a_callback_failed_and_ends_when_told(path: Path) -> None:
    failed, applied, stop = threading.Event(), threading.Event(), threading.Event()

    def on_change(new: Settings) -> None:
        if new.logging.level == "error":
            failed.set()
            raise RuntimeError("a bug")
        applied.set()

    file = SettingsFile(path, on_change=on_change)
    thread = threading.Thread(target=file.watch, args=(stop, 0.005))
    with capture_logs() as logs:
        thread.start()
        write(path, "logging: {level: error}")
        assert failed.wait(5)
        write(path, "logging: {level: debug}")
        assert applied.wait(5)
        stop.set()
        thread.join(5)
    assert not thread.is_alive()
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
        "configuration reload failed"
    ]
