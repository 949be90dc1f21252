"""What all sections share: the base model, and values as operators write them: Go durations, addresses, names."""

import re
from itertools import pairwise
from typing import Annotated

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

_SECONDS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_SECONDS)})"
_WAY_OUT = "write for example :8080 or 127.0.0.1:8080"


class Model(BaseModel):
    """A section: camelCase in the file, snake_case in Python, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_alias=True, validate_by_name=True
    )

    def check_shorter(self, *names: str) -> None:
        """Each named duration must be shorter than the next; ValueError."""
        given = self.model_dump(by_alias=True)
        for name, limit in pairwise(names):
            if given[name] >= given[limit]:
                raise ValueError(
                    f"{name} ({given[name]:g}s) must be shorter than {limit} ({given[limit]:g}s)"
                )


def matching(pattern: str, problem: str) -> AfterValidator:
    """A text that matches all of *pattern*; else it *problem*."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError(f"{value!r} {problem}")
        return value

    return AfterValidator(check)


def seconds(value: object) -> float:
    """The seconds in a duration as Go writes it, for example 40m or 300ms; ValueError for anything else."""
    if not isinstance(value, str) or not re.fullmatch(f"(?:{_PART})+", value, re.ASCII):
        raise ValueError(f"{value!r} is not a duration; write for example 40m or 1h30m")
    # Rounded to Go's own resolution, so that 300ms is 0.3 and not its float neighbour.
    return round(sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, value)), 9)


def seconds_above_zero(value: object) -> float:
    """As `seconds`, but 0 is refused."""
    if (result := seconds(value)) > 0:
        return result
    raise ValueError(f"{value!r} is no time at all; write a duration above zero, for example 5s")


def ca_certificates(pem: str) -> str:
    """The certificates of CAs in *pem*, without comments; ValueError, which does not repeat it, for anything else."""
    if "PRIVATE KEY" in pem:
        raise ValueError(
            "contains a private key, which does not belong in this file; leave only certificates"
        )
    expected = max(pem.count(f"-----{word} CERTIFICATE-----") for word in ("BEGIN", "END"))
    try:
        found = x509.load_pem_x509_certificates(pem.encode()) if pem.strip() else []
    except ValueError:
        found = []
    if pem.strip() and not len(found) == expected > 0:
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


def host_and_port(address: str) -> tuple[str, int]:
    """The halves of `host:port`, `[v6 host]:port` or `:port`, whose host is "" (the caller's default)."""
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):(\d{1,5})", address, re.ASCII)
    if not match or int(match[3]) > 65535:
        raise ValueError(f"{address!r} is not an address to listen on; {_WAY_OUT}")
    return match[1] or match[2] or "", int(match[3])


def _address(value: object) -> str:
    if not isinstance(value, str) or host_and_port(value)[1] == 0:
        raise ValueError(f"{value!r} is not an address to listen on; {_WAY_OUT}")
    return value


Duration = Annotated[float, BeforeValidator(seconds)]
"""Seconds, from a Go duration."""
Period = Annotated[float, BeforeValidator(seconds_above_zero)]
"""Seconds above zero, from a Go duration."""
Address = Annotated[str, BeforeValidator(_address)]
"""Where a server listens: `host:port`, or `:port` for the host that the environment names."""
CACertificates = Annotated[
    str,
    AfterValidator(ca_certificates),
    WithJsonSchema({"type": "string", "pattern": r"^([\s\S]*-----BEGIN CERTIFICATE-----[\s\S]*)?$"}),
]
"""Certificates of one or several CAs as PEM, or nothing."""
Port = Annotated[int, Field(ge=1, le=65535)]
Name = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
        "is not the name of an object; use lower case letters, digits and '-'",
    ),
]
