"""Issue temporary credentials: for a web identity token, and to an instance for its role."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params
from dev.lab.cloud.values import Session
from dev.lab.cloud.world import World

LONGEST, ROLE_SECONDS = 43_200, 7200


class AssumeRoleWithWebIdentity(Params, frozen=True):
    provider_id: str
    web_identity_token: str
    role_arn: str
    role_session_name: str
    duration_seconds: int = 7200


def assume_role(world: World, params: AssumeRoleWithWebIdentity, _: str) -> dict[str, Any]:
    if not params.web_identity_token.strip():
        raise Fault("InvalidParameter.WebIdentityTokenError", "The web identity's token is not accepted.")
    if not 1 <= params.duration_seconds <= LONGEST:
        raise Fault("InvalidParameter", f"DurationSeconds is {params.duration_seconds}; 1 to {LONGEST}.")
    secret_id, session = new_session(world, params.duration_seconds)
    credentials = {"Token": session.token, "TmpSecretId": secret_id, "TmpSecretKey": session.secret_key}
    return {"Credentials": credentials, **_end(session)}


def of_role(world: World) -> bytes:
    """What an instance's metadata service says of its role."""
    secret_id, session = new_session(world, ROLE_SECONDS)
    credentials = {"Token": session.token, "TmpSecretId": secret_id, "TmpSecretKey": session.secret_key}
    return msgspec.json.encode({**credentials, **_end(session), "Code": "Success"})


def new_session(world: World, seconds: float) -> tuple[str, Session]:
    key, token = world.new_id("key"), world.new_id("token")
    session = Session(secret_key=key, token=token, expires=world.clock() + seconds)
    secret_id = world.new_id("AKIDsession")
    world.sessions[secret_id] = session
    return secret_id, session


def secret_key(world: World, secret_id: str, token: str) -> str:
    """Raises Fault for an unknown id, or a token that is not of that id or too old."""
    if secret_id in world.knobs.accounts:
        return world.knobs.accounts[secret_id]
    session = world.sessions.get(secret_id)
    if session is None:
        code = (
            "AuthFailure.SecretIdNotFound" if secret_id.startswith("AKID") else "AuthFailure.InvalidSecretId"
        )
        raise Fault(code, f"The SecretId `{secret_id}` is not found.")
    if token != session.token or session.expires <= world.clock():
        raise Fault("AuthFailure.TokenFailure", f"The token of `{secret_id}` is wrong or has expired.")
    return session.secret_key


def _end(session: Session) -> dict[str, Any]:
    moment = datetime.fromtimestamp(session.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"ExpiredTime": int(session.expires), "Expiration": moment}


ACTIONS = {"AssumeRoleWithWebIdentity": Action(AssumeRoleWithWebIdentity, assume_role, 20)}
