"""What all sections share: the base model, and values as operators write them: Go durations, addresses, names.

Patterns are read by Python and by Helm, whose schema of values is made of these models: Go has no lookahead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Protocol, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

_SECONDS = {"h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_DIGITS = {"h": 6, "m": 7, "s": 9, "ms": 9}
"""Few enough that every sum fits into a timer of Python, and is exact in microseconds."""
DURATION = "".join(
    rf"(([0-9]{{1,{digits}}}(\.[0-9]{{0,3}})?|\.[0-9]{{1,3}}){unit})?" for unit, digits in _DIGITS.items()
)
PERCENT = "(100|[1-9][0-9]?)%"
_NUMBER_OF_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6([0-4][0-9]{3}|5([0-4][0-9]{2}|5([0-2][0-9]|3[0-5]))))"
HOST = r"([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])"
HOST_AND_PORT = f"{HOST}(:{_NUMBER_OF_PORT})?"
_CONTROLS = "\\x00-\\x08\\n-\\x0c\\x0e-\\x1f\\x7f-\\x9f\u2028\u2029\ufeff\ufffe\uffff"
"""What breaks a line of YAML."""
_REST = f"([^-{_CONTROLS}][^{_CONTROLS}]*)?"
"""Of a line that is no PEM."""
_CERTIFICATE = "-----BEGIN CERTIFICATE-----\\r?\\nMI[A-Za-z0-9+/=\\s]+\\n-----END CERTIFICATE-----"
CERTIFICATES = rf"\s*(({_REST}\n)*({_CERTIFICATE}(\r?\n{_REST})*)+)?|[\s\S]*PRIVATE KEY[\s\S]*"
"""As PEM, with lines of text around each. DER of a certificate begins with MI in base64.

One with a key is for a template to refuse, as Helm's own message would show it.
"""
_BLANKS = " \t\n\f\r"
"""What the regular expressions of Helm's schema know as white space; Python knows more."""


class Relation(Protocol):
    def problem(self, fields: Mapping[str, Any]) -> str | None:
        """What is wrong with *fields*, by their names in the file."""


@dataclass(frozen=True)
class Order:
    """Each of the durations is shorter than the next one, or equal where that is allowed."""

    names: tuple[str, ...]
    or_equal: bool = False

    @property
    def rule(self) -> str:
        return "no longer than" if self.or_equal else "shorter than"

    def problem(self, fields: Mapping[str, Any]) -> str | None:
        for name, limit in pairwise(self.names):
            value, most = fields[name], fields[limit]
            if value > most or (value == most and not self.or_equal):
                return f"{name} ({value:g}s) must be {self.rule} {limit} ({most:g}s)"
        return None


@dataclass(frozen=True)
class ValuesOfOperators:
    """A requirement has values if and only if its operator is one of those that take some."""

    operators: tuple[str, ...]

    def problem(self, fields: Mapping[str, Any]) -> str | None:
        takes, has = fields["operator"] in self.operators, bool(fields["values"])
        if takes == has:
            return None
        rule = "needs values, for example values: [redis]" if takes else "takes no values: leave them out"
        return f"operator {fields['operator']} of key {fields['key']!r} {rule}"


class Model(BaseModel):
    """A section: camelCase in the file, snake_case in Python, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_alias=True, validate_by_name=True
    )
    relations: ClassVar[tuple[Relation, ...]] = ()
    """Between its fields, by their names in the file; the chart checks them, too."""

    @model_validator(mode="after")
    def _fields_fit_each_other(self) -> Self:
        fields = self.model_dump(by_alias=True) if self.relations else {}
        for relation in self.relations:
            if problem := relation.problem(fields):
                raise ValueError(problem)
        return self


@dataclass(frozen=True)
class Matching:
    """A text that matches all of *pattern*; else it *problem*."""

    pattern: str
    problem: str

    def check(self, value: object) -> object:
        # What would be right in quotes is refused afterwards, as no text.
        if not re.fullmatch(self.pattern, str(value), re.ASCII):
            raise ValueError(f"{value!r} {self.problem}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"pattern": f"^({self.pattern})$"}


def seconds(value: object) -> float:
    """The seconds in a duration as Go writes it, for example 40m or 300ms; ValueError for anything else."""
    if not isinstance(value, str) or not value or not re.fullmatch(DURATION, value, re.ASCII):
        raise ValueError(f"{value!r} is not a duration; write for example 40m or 1h30m")
    return float(
        sum(Decimal(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9.]+)([a-z]+)", value))
    )


def seconds_above_zero(value: object) -> float:
    """As `seconds`, but 0 is refused."""
    if (result := seconds(value)) > 0:
        return result
    raise ValueError(f"{value!r} is no time at all; write a duration above zero, for example 5s")


def percent(value: object) -> int:
    """The number in a text such as 50%, from 1 to 100; ValueError for anything else."""
    if not isinstance(value, str) or not re.fullmatch(PERCENT, value, re.ASCII):
        raise ValueError(f'{value!r} is not a percentage; write one from "1%" to "100%", in quotes')
    return int(value.removesuffix("%"))


def ca_certificates(pem: str) -> str:
    """The certificates of CAs in *pem*, without comments; ValueError, which does not repeat it, for anything else."""
    if "PRIVATE KEY" in pem:
        raise ValueError(
            "contains a private key, which does not belong in this file; leave only certificates"
        )
    if not pem.strip(_BLANKS):
        return ""
    expected = max(pem.count(f"-----{word} CERTIFICATE-----") for word in ("BEGIN", "END"))
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except (ValueError, x509.InvalidVersion):
        found = []
    if not len(found) == expected > 0:
        raise ValueError(
            f"is not PEM ({len(found)} of {expected} certificates can be read); write the certificates of the CAs "
            "one after the other, each from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"
        )
    for each in found:
        if not _may_sign(each):
            raise ValueError(
                f"{each.subject.rfc4514_string()} is not a CA; write the CA that signed it instead"
            )
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound):
        return False


def port_of(address: str) -> int:
    """Of an `Address`."""
    return int(address.rpartition(":")[2])


_WAY_OUT = "write for example :8080 or 127.0.0.1:8080"
_OF_DURATION = {"type": "string", "minLength": 2, "pattern": f"^{DURATION}$"}
OF_PERIOD = _OF_DURATION | {"allOf": [{"pattern": "[1-9]"}]}
Duration = Annotated[float, BeforeValidator(seconds), WithJsonSchema(_OF_DURATION)]
"""Seconds, from a Go duration."""
Period = Annotated[float, BeforeValidator(seconds_above_zero), WithJsonSchema(OF_PERIOD)]
"""Seconds above zero, from a Go duration."""
Address = Annotated[
    str, Matching(f"{HOST}?:{_NUMBER_OF_PORT}", f"is not an address to listen on; {_WAY_OUT}")
]
"""Where a server listens: `host:port`, or `:port` for the host that the environment names."""
CACertificates = Annotated[
    str, AfterValidator(ca_certificates), WithJsonSchema({"type": "string", "pattern": f"^({CERTIFICATES})$"})
]
"""Certificates of one or several CAs as PEM, or nothing."""
Port = Annotated[int, Field(ge=1, le=65535, strict=True)]
MOST = 2**31 - 1
Count = Annotated[int, Field(ge=1, le=MOST, strict=True)]
Limit = Count | None
"""None is no limit; 0 is refused, because it could mean either."""
Percent = Annotated[
    int, BeforeValidator(percent), WithJsonSchema({"type": "string", "pattern": f"^({PERCENT})$"})
]
"""From 1 to 100, as text: "50%"."""
Name = Annotated[
    str,
    Matching(
        r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
        "is not the name of an object; use lower case letters, digits and '-'",
    ),
]
Region = Annotated[
    str, Matching(r"([a-z]+(-[a-z0-9]+)+)?", "is not a region; write its long name, for example ap-singapore")
]
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LabelName = Annotated[
    str,
    Matching(
        rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_LABEL}",
        "is not the name of a label; write for example app or example.com/app",
    ),
]
LabelValue = Annotated[
    str,
    Matching(f"({_LABEL})?", "is not the value of a label; use at most 63 letters, digits, '-', '_' and '.'"),
]
Labels = dict[LabelName, LabelValue]
Text = Annotated[
    str,
    Matching(
        f"[^{_CONTROLS}\\r]{{0,255}}",
        "is longer than 255 characters, or has control characters; leave them out",
    ),
]
Image = Annotated[
    str,
    Matching(
        r"([A-Za-z0-9][-A-Za-z0-9._:/@]*)?", "is not an image; write for example registry.example/name:tag"
    ),
]
URL = Annotated[
    str,
    Matching(
        f"(https?://{HOST_AND_PORT}(/[-A-Za-z0-9._~/]*)?)?",
        "is no URL that can be asked; write for example http://prometheus.monitoring:9090",
    ),
]
"""Of http or https, with neither user nor query, or nothing."""
File = Annotated[
    str,
    Matching(
        "(/[-A-Za-z0-9._/]+)?", "is not the absolute path of a file; write for example /etc/prometheus/token"
    ),
]
Quantity = Annotated[
    str,
    Matching(
        r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|Ki|[MGTPE]i?|[eE][-+]?[0-9]{1,2})?",
        "is not a quantity; write for example 500m or 128Mi",
    ),
]
Amount = Quantity | Annotated[int, Field(ge=0, le=MOST)] | Annotated[float, Field(ge=0, le=MOST)]


class Resources(TypedDict, total=False):
    """Of a container, as Kubernetes has them."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    requests: dict[LabelName, Amount]
    limits: dict[LabelName, Amount]
    claims: list[dict[str, str]]
