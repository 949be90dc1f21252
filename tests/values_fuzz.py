"""Sets of the chart's values, drawn from a seed: what the schema of each allows, what lies at a bound, and junk."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dev.lab import values_schema
from tests.charts import ANYCAST_IP, CA, CONFIG, SETS, configurations, nodes

SCHEMA = json.loads(values_schema.SCHEMA.read_text())
TEMPLATES = (CONFIG, "templates/webhook-deployment.yaml")
"""The programs' configuration, and what calls the chart's checks."""
BASES: tuple[dict[str, Any], ...] = (
    {},
    ANYCAST_IP,
    SETS["all-features"],
    SETS["the-values-of-AIA-IP-Controller"],
    SETS["the-values-of-TKE-Resilience"],
)
DURATIONS = (
    *("1ms", "5s", "6s", "10s", "9999ms", "15s", "30s", "1m", "60s", "5m", "1h30m", "720h", "719h59m60s"),
    *(
        "999999h",
        ".5s",
        "5.s",
        "0.001ms",
        "1.5h",
        "8760h",
        "9000h",
        "17520h",
        "0s",
        "0h0m",
        "0.000ms",
        ".0s",
        "1000000h",
    ),
    *("0.0001ms", "5", "5 s", "-5s", "+5s", "1d", "5s5s", "1m1h", "1us", "1\u00b5s", "5s\n", "\u0665s", "h"),
)
NAMES = (
    *("", "a", "redis", "kube-system", "tke-scheduler", "A", "Redis", "a b", "a.b", "-a", "a-", "a_b", "a/b"),
    *("a" * 49 + "--a", "a" * 63, "a" * 64, "a" * 253, "a" * 254, "example.com/app", "Example.com/app"),
    *("ap-singapore", "ap-x-1", "cls-1", "cls-", "vpc-1", "subnet-1", "subnet-2", "subnet-", "bwp-1", "role"),
)
PLACES = (
    *(":8080", ":9443", ":0", ":00", ":65535", ":65536", ":99999", ":080", "8080", "host:80", "127.0.0.1:1"),
    *("[::1]:80", "::1:80", "a b:80", "host", "host:0", "host:99999", "[::1]", "example.com", "http://host"),
    *("http://host:3128/", "http://host/path", "ftp://host", "http://me:word@host", "10.0.0.0/8", "10.0.0.0"),
    *("registry.example:5000/team/app", "app:v1", "app@sha256:" + "0" * 64, "$(POD_IP)"),
)
TEXTS = (
    *("1", "1e3", "0b_", "0b_1", "1_0", "1:30", "2001-99-99", "true", "no", "null", "~", "=", "<<", "- a"),
    *("a: b", "#", "{{ .a }}", "{}", "'", '"', "\\", "\n", "\t", "\0", "\x7f", "\x85", "\u2028", "\ufeff"),
    *("\ufffe", "\U0001f600", "\u00e9", "a" * 256, "nameserver 1.1.1.1\n# x\r\n\n", "names x", " search a"),
    *("options\u00a0x", CA, f"text\n{CA}text", f"-{CA}", "text\n", "-----BEGIN CERTIFICATE-----"),
)
SHARES = ("1%", "50%", "90%", "100%", "0%", "101%", "5 %")
STRINGS = (*DURATIONS, *NAMES, *PLACES, *TEXTS, *SHARES)
NUMBERS = (-1, -0.0, 0, 1e-9, 1e-5, 0.5, 1, 1.5, 2.0, 5, 10, 46, 512, 1024, 2000, 8080, 65535, 65536, 10**30)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    [""],
    {"": ""},
    {"a": "b"},
    {"a": 1},
    {"a": None},
)
PAIRS = (
    ("cloud.region", "cloud.regionLong"),
    ("anycastIP.bandwidth", "config.aia.bandwidth"),
    ("certs.selfManaged.overlap", "certs.selfManaged.renewBefore", "certs.selfManaged.leafValidity"),
    ("webhook.drainPeriod", "webhook.preStopSleep"),
    ("webhook.port", "health.healthProbeBindAddress", "metrics.bindAddress"),
    ("anycastIP.addressType", "anycastIP.anycastZone", "anycastIP.clusterID"),
)
"""Values that must fit each other."""


@dataclass(frozen=True)
class Drawn:
    base: int
    """Its place in BASES."""
    changes: dict[str, Any]
    """What differs, by path."""

    @property
    def values(self) -> dict[str, Any]:
        result = copy.deepcopy(BASES[self.base])
        for path, value in self.changes.items():
            put(result, path.split("."), value)
        return result


def put(section: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """*value* at *path*; a section in between that is none is replaced by one."""
    name, *rest = path
    if not rest:
        section[name] = value
        return
    if not isinstance(section.get(name), dict):
        section[name] = {}
    put(section[name], rest, value)


LEAVES = {path: node for path, node in nodes(SCHEMA) if "properties" not in node}


def draw(seed: int, count: int) -> Iterator[Drawn]:
    source = random.Random(seed)  # noqa: S311 - nothing is kept secret
    for _ in range(count):
        paths = source.sample(sorted(LEAVES), source.choice((1, 1, 2, 3)))
        if source.random() < 0.2:
            paths = list(source.choice(PAIRS))
        changes = {path: value_for(source, LEAVES[path]) for path in paths}
        if source.random() < 0.02:
            changes[source.choice(paths).rpartition(".")[0] or "global"] = source.choice(OTHERS)
        yield Drawn(source.choice((0, 0, *range(len(BASES)))), changes)


def value_for(source: random.Random, schema: dict[str, Any]) -> Any:
    kind = source.random()
    if kind < 0.7:
        return fitting(source, schema)
    if kind < 0.8:
        return mutated(source, fitting(source, schema))
    return source.choice((*STRINGS, *NUMBERS, *OTHERS))


def mutated(source: random.Random, value: Any) -> Any:
    if not isinstance(value, str):
        return str(value)
    at = source.randrange(len(value) + 1)
    return value[:at] + source.choice(("", *"aZ0-._:/ \n", value[:1])) + value[at + source.randrange(2) :]


def fitting(source: random.Random, schema: dict[str, Any]) -> Any:
    """What *schema* allows, more or less: bounds are exceeded by one, parts of objects are junk at times."""
    schema = resolved(schema)
    match schema:
        case {"anyOf": choices}:
            return fitting(source, source.choice(choices))
        case {"const": value}:
            return value
        case {"enum": allowed}:
            return source.choice(allowed)
        case {"type": [*kinds]}:
            return fitting(source, {**schema, "type": source.choice(kinds)})
        case {"type": "object"}:
            return an_object(source, schema)
        case {"type": "array"}:
            return [value_for(source, schema.get("items", {})) for _ in range(source.randrange(3))]
        case {"type": "boolean"}:
            return source.random() < 0.5
        case {"type": "integer" | "number"}:
            bounds = [schema[each] for each in ("minimum", "exclusiveMinimum", "maximum") if each in schema]
            near = [bound + step for bound in bounds for step in (-1, 0, 1)]
            return source.choice([*near, *filter(lambda each: fits(schema, each), NUMBERS)])
        case {"type": "string"} if allowed := [each for each in STRINGS if matches(schema, each)]:
            return source.choice(allowed)
    return source.choice(OTHERS)


def an_object(source: random.Random, schema: dict[str, Any]) -> dict[str, Any]:
    required = schema.get("required", ())
    names = [
        name for name in schema.get("properties", ()) if source.random() < (0.9 if name in required else 0.5)
    ]
    result = {name: value_for(source, schema["properties"][name]) for name in names}
    for pattern, part in schema.get("patternProperties", {}).items():
        allowed = [each for each in STRINGS if re.search(pattern, each)] or ["name", "kind"]
        for _ in range(source.randrange(3)):
            result[source.choice(allowed)] = value_for(source, part)
    return result


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def fits(schema: dict[str, Any], number: float) -> bool:
    whole = schema["type"] == "number" or number == int(number)
    return whole and schema.get("minimum", number) <= number <= schema.get("maximum", number)


def matches(schema: dict[str, Any], text: str) -> bool:
    return all(re.search(each.get("pattern", ""), text) for each in (schema, *schema.get("allOf", ())))


def verdicts(drawn: Sequence[Drawn]) -> list[dict[str, str]]:
    """What Helm's libraries make of each."""
    return configurations([each.values for each in drawn], *TEMPLATES)
