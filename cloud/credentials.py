"""Find the keys to sign with, for each call, so that a rotated Secret needs no restart.

Static keys come from a mounted Secret or the environment; temporary ones from the machine's metadata service, or from
STS in exchange for the pod's identity. Those are renewed in time, and used to their end while that fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import urllib3

from cloud.apis import STS, Api
from cloud.errors import CloudError, NotConfigured
from cloud.responses import Pascal
from cloud.transport import Source, Transport
from cloud.types import Keys
from runtime import threading, time
from settings import CloudSettings

IDS = ("TENCENTCLOUD_SECRET_ID", "secretID", "secretId", "SECRET_ID")
SECRETS = ("TENCENTCLOUD_SECRET_KEY", "secretKey", "SECRET_KEY")
TOKENS = ("TENCENTCLOUD_TOKEN", "TENCENTCLOUD_SESSION_TOKEN", "token")
"""Names that a Secret may give its keys, those of the original controllers' Secrets among them."""
TKE_IDENTITY = ("TKE_REGION", "TKE_PROVIDER_ID", "TKE_WEB_IDENTITY_TOKEN_FILE", "TKE_ROLE_ARN")
"""What TKE sets in a pod whose ServiceAccount names a role."""
METADATA = "http://metadata.tencentyun.com/latest/meta-data/cam/security-credentials/"
METADATA_TIMEOUT = 2.0
"""Seconds; the service is on the machine's own link."""
NO_ROLE = "no keys: the metadata service gives none; give the machine a role, or this process keys"
ASSUME_ROLE = Api("AssumeRoleWithWebIdentity", STS, 20)
LIFETIME = 7200
AHEAD = 300.0
"""Seconds before their end from when on keys are renewed: as far as the cloud's clock may be from ours."""
PERIOD = 600.0
"""Seconds after which keys that are good for longer are looked up again: another role may have other keys."""
PAUSE = 10.0
"""Seconds between two attempts to renew; for a call that waits for keys, too."""

_missing = partial(NotConfigured, "NoCredentials", action="credentials")
ENDED = NotConfigured(
    "KeysEnded", "the keys had ended when they came: is this machine's clock right?", action="credentials"
)


def source_of(settings: CloudSettings, environ: Mapping[str, str]) -> Source:
    """The keys by the way that the settings name.

    auto is: static keys if there are any, else the pod's identity if TKE gave it one, else the role of
    the machine. The pod's comes first because it is the narrower one.
    """
    role = CredentialCache(partial(from_machine, settings.cvm_role))
    oidc = CredentialCache(partial(from_pod_identity, settings, environ))

    def static() -> Keys:
        if keys := _static(settings, environ):
            return keys
        raise _missing(
            f"no keys: cloud.credentialsDir is {settings.credentials_dir!r} and has no files {IDS[0]} and {SECRETS[0]},"
            " and the environment has neither; set them, or choose another way with cloud.credentials"
        )

    def auto() -> Keys:
        keys = _static(settings, environ)
        return keys or (oidc if all(environ.get(name) for name in TKE_IDENTITY) else role)()

    ways: dict[str, Source] = {"auto": auto, "static": static, "cvm-role": role, "tke-oidc": oidc}
    return ways[settings.credentials]


def _static(settings: CloudSettings, environ: Mapping[str, str]) -> Keys | None:
    files = _files(Path(settings.credentials_dir)) if settings.credentials_dir else {}
    return _keys(files) or _keys(environ)


def _keys(values: Mapping[str, str]) -> Keys | None:
    found = []
    for names in (IDS, SECRETS, TOKENS):
        value = next((given for name in names if (given := values.get(name, "").strip())), "")
        # Libraries quote a header that they refuse, and errors are logged.
        if not (value.isascii() and value.isprintable()):
            what = f"{names[0]}, or what stands for it, has a line break or a character that is not ASCII"
            raise _missing(f"{what}; write it on one line")
        found.append(value)
    secret_id, secret_key, token = found
    return Keys(secret_id, secret_key, token or None) if secret_id and secret_key else None


def _files(directory: Path) -> dict[str, str]:
    # The kubelet moves the link ..data to a new directory, and deletes the old one: all files are read from one
    # and the same, and again when that may have been deleted meanwhile.
    data = (directory / "..data").resolve()
    place = data if data.is_dir() else directory
    found = {name: _text(place / name) for name in (*IDS, *SECRETS, *TOKENS)}
    return found if (directory / "..data").resolve() == data else _files(directory)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _missing(f"{path} cannot be read: {type(error).__name__}") from error


class CredentialCache:
    """A source of the keys that *fetch* brings."""

    def __init__(self, fetch: Source, *, clock: Callable[[], float] = time.time) -> None:
        self._fetch, self._clock = fetch, clock
        self._lock = threading.Lock()
        self._held: Keys | None = None
        self._failure: CloudError = ENDED
        self._looked_at, self._look_at = math.inf, -math.inf

    def __call__(self) -> Keys:
        """Raises what *fetch* raised when there are no keys that are good now."""
        with self._lock:
            # A clock that was ahead must not put the next look off.
            if not self._looked_at <= (now := self._clock()) < self._look_at:
                try:
                    self._held, self._failure = self._fetch(), ENDED
                except CloudError as error:
                    self._failure = error
                now = self._looked_at = self._clock()
                due = min(self._held.end - AHEAD, now + PERIOD) if self._held else now
                self._look_at = max(now + PAUSE, due)
            if self._held and now < self._held.end:
                return self._held
            raise self._failure.with_traceback(None)


class _TmpKeys(Pascal):
    tmp_secret_id: str
    tmp_secret_key: str
    token: str

    def until(self, end: float) -> Keys:
        return Keys(self.tmp_secret_id, self.tmp_secret_key, self.token, end)


class _RoleKeys(_TmpKeys):
    expired_time: float


class _Assumed(Pascal):
    credentials: _TmpKeys
    expired_time: float


for _each in (_RoleKeys, _Assumed):  # as in cloud.responses
    msgspec.json.Decoder(_each)


def from_machine(role: str, url: str = METADATA) -> Keys:
    """The keys of *role*, or of the only one that the machine has when it is empty."""
    content = _metadata(url + (role or _metadata(url).decode(errors="replace").strip()))
    try:
        found = msgspec.json.decode(content, type=_RoleKeys)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _missing(f"the metadata service gave no keys for the role: {error}") from error
    return found.until(found.expired_time)


def _metadata(url: str) -> bytes:
    try:
        answer = urllib3.request("GET", url, timeout=METADATA_TIMEOUT, retries=False)
    except urllib3.exceptions.HTTPError as error:
        raise _missing(f"{NO_ROLE} ({error})") from error
    if answer.status != 200:
        raise _missing(f"{NO_ROLE} (status {answer.status})")
    return answer.data


def from_pod_identity(settings: CloudSettings, environ: Mapping[str, str]) -> Keys:
    """The keys of the role that TKE's environment names, for the token that it mounts."""
    for name in TKE_IDENTITY:
        if not environ.get(name):
            raise _missing(
                f"{name} is not set: annotate the ServiceAccount with tke.cloud.tencent.com/role-arn"
            )
    region, provider, token_file, role = (environ[name] for name in TKE_IDENTITY)
    try:
        token = Path(token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{token_file} cannot be read: {type(error).__name__}"
        raise _missing(f"TKE_WEB_IDENTITY_TOKEN_FILE {why}") from error
    params = {
        "ProviderId": provider,
        "WebIdentityToken": token,
        "RoleArn": role,
        "RoleSessionName": "drawbridge",
        "DurationSeconds": LIFETIME,
    }
    unsigned = Transport(settings, region, None)
    answer = unsigned.call(ASSUME_ROLE, params, _Assumed, settings.attempt_timeout)
    return answer.credentials.until(answer.expired_time)
