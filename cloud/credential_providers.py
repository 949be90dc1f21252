"""Ask for temporary keys: at the machine's metadata service, or at STS in exchange for the pod's identity."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import urllib3

from cloud.apis import STS, Api
from cloud.credential_cache import Keys, TemporaryKeys
from cloud.credentials import TKE_IDENTITY
from cloud.errors import NotConfigured
from cloud.response_types import Pascal
from cloud.transport import Transport
from settings import CloudSettings

METADATA = "http://metadata.tencentyun.com/latest/meta-data/cam/security-credentials/"
METADATA_TIMEOUT = 2.0
"""Seconds; the service is on the machine's own link."""
NO_ROLE = "no keys: the metadata service gives none; give the machine a role, or this process keys"
ASSUME_ROLE = Api("AssumeRoleWithWebIdentity", STS, 20)
LIFETIME = 7200

_failed = partial(NotConfigured, "NoCredentials", action="credentials")


class _RoleKeys(Pascal):
    tmp_secret_id: str
    tmp_secret_key: str
    token: str
    expired_time: float


class _StsKeys(Pascal):
    tmp_secret_id: str
    tmp_secret_key: str
    token: str


class _Assumed(Pascal):
    credentials: _StsKeys
    expired_time: float


def from_machine(role: str, url: str = METADATA) -> TemporaryKeys:
    """The keys of *role*, or of the only one that the machine has when it is empty."""
    content = _metadata(url + (role or _metadata(url).decode(errors="replace").strip()))
    try:
        found = msgspec.json.decode(content, type=_RoleKeys)
    except msgspec.MsgspecError as error:
        raise _failed(f"the metadata service gave no keys for the role: {error}") from error
    return TemporaryKeys(Keys(found.tmp_secret_id, found.tmp_secret_key, found.token), found.expired_time)


def _metadata(url: str) -> bytes:
    try:
        answer = urllib3.request("GET", url, timeout=METADATA_TIMEOUT, retries=False)
    except urllib3.exceptions.HTTPError as error:
        raise _failed(f"{NO_ROLE} ({error})") from error
    if answer.status != 200:
        raise _failed(f"{NO_ROLE} (status {answer.status})")
    return answer.data


def from_pod_identity(settings: CloudSettings, environ: Mapping[str, str]) -> TemporaryKeys:
    """The keys of the role that TKE's environment names, for the token that it mounts."""
    region, provider, token_file, role = (_required(environ, name) for name in TKE_IDENTITY)
    params = {
        "ProviderId": provider,
        "WebIdentityToken": _token(token_file),
        "RoleArn": role,
        "RoleSessionName": "drawbridge",
        "DurationSeconds": LIFETIME,
    }
    transport = Transport(settings, region, None)
    answer = transport.call(ASSUME_ROLE, params, _Assumed, settings.attempt_timeout)
    keys = answer.credentials
    return TemporaryKeys(Keys(keys.tmp_secret_id, keys.tmp_secret_key, keys.token), answer.expired_time)


def _required(environ: Mapping[str, str], name: str) -> str:
    if value := environ.get(name):
        return value
    raise _failed(f"{name} is not set: annotate the ServiceAccount with tke.cloud.tencent.com/role-arn")


def _token(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = type(error).__name__
        raise _failed(f"TKE_WEB_IDENTITY_TOKEN_FILE {path} cannot be read: {why}") from error
