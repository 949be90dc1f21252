"""Find the keys to sign with, for each call, so that a rotated Secret needs no restart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cloud.credential_cache import Keys, Source
from cloud.errors import NotConfigured
from settings import CloudSettings

IDS = ("TENCENTCLOUD_SECRET_ID", "secretID", "secretId", "SECRET_ID")
KEYS = ("TENCENTCLOUD_SECRET_KEY", "secretKey", "SECRET_KEY")
TOKENS = ("TENCENTCLOUD_TOKEN", "TENCENTCLOUD_SESSION_TOKEN", "token")
"""Names that a Secret may give its keys, those of the original controllers' Secrets among them."""
TKE_IDENTITY = ("TKE_REGION", "TKE_PROVIDER_ID", "TKE_WEB_IDENTITY_TOKEN_FILE", "TKE_ROLE_ARN")
"""What TKE sets in a pod whose ServiceAccount names a role."""


def source(settings: CloudSettings, environ: Mapping[str, str], *, role: Source, oidc: Source) -> Source:
    """The keys by the way that the settings name.

    auto is: static keys if there are any, else the pod's identity if TKE gave it one, else the role of
    the machine. The pod's comes first because it is the narrower one.
    """

    def static() -> Keys:
        keys = _static(settings, environ)
        if keys is None:
            raise NotConfigured("NoCredentials", _missing(settings), action="credentials")
        return keys

    def auto() -> Keys:
        keys = _static(settings, environ)
        return keys or (oidc if all(environ.get(name) for name in TKE_IDENTITY) else role)()

    ways: dict[str, Source] = {"auto": auto, "static": static, "cvm-role": role, "tke-oidc": oidc}
    return ways[settings.credentials]


def _static(settings: CloudSettings, environ: Mapping[str, str]) -> Keys | None:
    files = _files(Path(settings.credentials_dir)) if settings.credentials_dir else {}
    return _keys(files) or _keys(environ)


def _keys(values: Mapping[str, str]) -> Keys | None:
    secret_id, secret_key, token = (_signable(_first(values, names), names) for names in (IDS, KEYS, TOKENS))
    return Keys(secret_id, secret_key, token or None) if secret_id and secret_key else None


def _first(values: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((found for name in names if (found := values.get(name, "").strip())), "")


def _signable(value: str, names: tuple[str, ...]) -> str:
    # Libraries quote a header that they refuse, and errors are logged.
    if value.isascii() and value.isprintable():
        return value
    raise NotConfigured(
        "NoCredentials",
        f"{names[0]}, or what stands for it, has a line break or a character that is not ASCII; write it on one line",
        action="credentials",
    )


def _files(directory: Path) -> dict[str, str]:
    # The kubelet moves the link ..data to a new directory, and deletes the old one: all files are read from one
    # and the same, and again when that may have been deleted meanwhile.
    data = (directory / "..data").resolve()
    place = data if data.is_dir() else directory
    found = {name: _text(place / name) for name in (*IDS, *KEYS, *TOKENS)}
    return found if (directory / "..data").resolve() == data else _files(directory)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(
            "NoCredentials", f"{path} cannot be read: {error.__class__.__name__}", action="credentials"
        ) from error


def _missing(settings: CloudSettings) -> str:
    return (
        f"no keys: cloud.credentialsDir is {settings.credentials_dir!r} and has no files {IDS[0]} and {KEYS[0]}, "
        f"and the environment has neither; set them, or choose another way with cloud.credentials"
    )
