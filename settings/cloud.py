"""Endpoints and credentials of Tencent Cloud; secrets are never in the file."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, WithJsonSchema

from settings.values import HOST_AND_PORT, Matching, Model, Order, Percent, Period, Region

_URL = Matching(
    f"(https?://{HOST_AND_PORT}/?)?", "is not the URL of a proxy; write for example http://proxy:3128"
)


def _proxy(value: object) -> object:
    if "@" in str(value):
        # The value is not repeated: messages are logged.
        raise ValueError("a password does not belong in this file; leave it out and set HTTPS_PROXY instead")
    return _URL.check(value)


class CloudSettings(Model):
    """*endpoint* is for every service; without it each has a name under *root_domain*.

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
