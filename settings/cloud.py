"""Endpoints and credentials of Tencent Cloud; secrets are never in the file."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from settings.values import Model, Period, matching


def _proxy(value: str) -> str:
    url = urlsplit(value)
    if url.username or url.password:
        # The value is not repeated: messages are logged.
        raise ValueError("a password does not belong in this file; leave it out and set HTTPS_PROXY instead")
    if value and (url.scheme not in ("http", "https") or not url.hostname):
        raise ValueError(f"{value!r} is not the URL of a proxy; write for example http://proxy:3128")
    return value


class CloudSettings(Model):
    """*endpoint* is for every service; without it each has a name under *root_domain*.

    Keys come from the files in *credentials_dir*, else from TENCENTCLOUD_SECRET_ID, _SECRET_KEY and _TOKEN.
    """

    region: Annotated[
        str,
        matching(r"([a-z]+(-[a-z0-9]+)+)?", "is not a region; write its long name, for example ap-singapore"),
    ] = ""
    endpoint: Annotated[
        str,
        matching(
            r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?|",
            "is not host or host:port; write for example vpc.example.com:8080, and the scheme in scheme",
        ),
    ] = ""
    scheme: Literal["https", "http"] = "https"
    root_domain: Annotated[
        str,
        matching(
            r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+",
            "is not a domain; write for example internal.tencentcloudapi.com",
        ),
    ] = "tencentcloudapi.com"
    proxy: Annotated[str, AfterValidator(_proxy)] = ""
    ca_file: str = ""
    credentials: Literal["auto", "static", "cvm-role", "tke-oidc"] = "auto"
    credentials_dir: str = ""
    cvm_role: str = ""
    call_timeout: Period = 30.0
    attempt_timeout: Period = 10.0
    # One call in ten is left for people at the console, who share the account's limits.
    rate_share: Annotated[float, Field(gt=0, le=1)] = 0.9

    @model_validator(mode="after")
    def _an_attempt_fits_into_a_call(self) -> Self:
        if self.attempt_timeout > self.call_timeout:
            raise ValueError(
                f"attemptTimeout ({self.attempt_timeout:g}s) must not be longer than "
                f"callTimeout ({self.call_timeout:g}s)"
            )
        return self
