"""Where keys come from, and what happens when they change or end."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud import credentials
from cloud.client import Cloud, caller
from cloud.credentials import CredentialCache
from cloud.errors import CloudError, NotConfigured, Unavailable
from cloud.transport import Source
from cloud.types import Keys
from settings import CloudSettings
from tests.cloud_server import error, says, settings
from tests.fakes import FakeClock
from tests.misbehaving_server import answers, hangs, in_turn, resets, serving

ENVIRONMENT = {"TENCENTCLOUD_SECRET_ID": "env", "TENCENTCLOUD_SECRET_KEY": "k"}
ROLE, OIDC = (Keys(each, "k", "t", math.inf) for each in ("role", "oidc"))
TKE = dict.fromkeys(credentials.TKE_IDENTITY, "x")


def source(environ: dict[str, str], **fields: object) -> Source:
    return credentials.source_of(CloudSettings.model_validate(fields), environ)


def write(directory: Path, **files: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / name).write_text(content)
    return directory


@pytest.mark.parametrize(
    ("way", "environ", "expected"),
    [
        pytest.param("auto", ENVIRONMENT | TKE, "env", id="static keys come first"),
        pytest.param("auto", TKE, "oidc", id="the pod's identity comes before the machine's role"),
        pytest.param("auto", {}, "role", id="the machine's role comes last"),
        pytest.param("auto", {**TKE, "TKE_REGION": ""}, "role", id="half an identity is none"),
        pytest.param("auto", {"TENCENTCLOUD_SECRET_ID": "env"}, "role", id="half a pair is none"),
        pytest.param("static", ENVIRONMENT, "env", id="static"),
        pytest.param("cvm-role", ENVIRONMENT | TKE, "role", id="role"),
        pytest.param("tke-oidc", ENVIRONMENT, "oidc", id="identity"),
    ],
)
def test_keys_come_the_way_that_is_named(
    way: str, environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "from_machine", lambda role: ROLE)
    monkeypatch.setattr(credentials, "from_pod_identity", lambda settings, environ: OIDC)
    assert source(environ, credentials=way)().secret_id == expected


def test_without_static_keys_it_is_said_where_they_were_looked_for() -> None:
    with pytest.raises(NotConfigured, match=r"cloud.credentialsDir is '/nowhere'.*TENCENTCLOUD_SECRET_ID"):
        source({}, credentials="static", credentialsDir="/nowhere")()


def test_a_token_goes_with_its_keys() -> None:
    assert source({**ENVIRONMENT, "TENCENTCLOUD_TOKEN": "t"})().token == "t"
    assert source(ENVIRONMENT)().token is None


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY"), id="ours"),
        pytest.param(("secretID", "secretKey"), id="of the original for anycast addresses"),
        pytest.param(("SECRET_ID", "SECRET_KEY"), id="of the original for super nodes"),
    ],
)
def test_a_mounted_Secret_counts_under_any_of_its_names_and_before_the_environment(  # noqa: N802
    tmp_path: Path, names: tuple[str, str]
) -> None:
    write(tmp_path, **{names[0]: "file\n", names[1]: "k\n"})
    assert source(ENVIRONMENT, credentialsDir=str(tmp_path))() == Keys("file", "k")


def mounted(directory: Path) -> Callable[[], object]:
    """Version 1 of a Secret, as the kubelet mounts it; what is returned puts version 2 in its place."""
    for version in ("v1", "v2"):
        write(directory / version, secretID=f"id-{version}", secretKey=f"key-{version}")
    (directory / "..data").symlink_to("v1")
    for name in ("secretID", "secretKey"):
        (directory / name).symlink_to(f"..data/{name}")
    (directory / "new").symlink_to("v2")
    return lambda: (directory / "new").rename(directory / "..data")


def test_a_Secret_that_the_kubelet_swaps_is_used_from_the_next_call_on(tmp_path: Path) -> None:  # noqa: N802
    swap, keys = mounted(tmp_path), source({}, credentialsDir=str(tmp_path))
    assert keys() == Keys("id-v1", "key-v1")
    swap()
    assert keys() == Keys("id-v2", "key-v2")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "secretID").write_bytes(b"\xff")
    with pytest.raises(NotConfigured, match="secretID cannot be read"):
        source({}, credentialsDir=str(tmp_path))()


def test_a_Secret_that_is_swapped_while_it_is_read_is_read_again(  # noqa: N802
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, read = mounted(tmp_path), Path.read_text

    def swap_first(path: Path) -> str:
        if (tmp_path / "v1").exists():
            swap()
            shutil.rmtree(tmp_path / "v1")
        return read(path)

    monkeypatch.setattr(Path, "read_text", swap_first)
    assert source(ENVIRONMENT, credentialsDir=str(tmp_path))() == Keys("id-v2", "key-v2")


@pytest.mark.parametrize("broken", ["se\ncret", "se\r\ncret", "se\0cret", "secrét", "se\u200bcret"])
@pytest.mark.parametrize("name", ["TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY", "TENCENTCLOUD_TOKEN"])
def test_what_cannot_stand_in_a_header_is_named_and_not_quoted(name: str, broken: str) -> None:
    with pytest.raises(NotConfigured, match=name) as caught:
        source({**ENVIRONMENT, name: broken}, credentials="static")()
    assert broken not in str(caught.value)
    assert "cret" not in str(caught.value)


# Keys that end


class Fetches:
    """Keys that are good for so many seconds, or the error that was put in their place."""

    def __init__(self, clock: FakeClock, good_for: float = 3600.0) -> None:
        self.clock, self.times, self.good_for = clock, 0, good_for
        self.failure: CloudError | None = None

    def __call__(self) -> Keys:
        self.times += 1
        if self.failure:
            raise self.failure
        return Keys(f"id-{self.times}", "k", "t", self.clock() + self.good_for)


@pytest.mark.parametrize(
    ("good_for", "again_at"),
    [
        pytest.param(400.0, 100, id="before they end"),
        pytest.param(7200.0, 600, id="in case the role has other keys by now"),
    ],
)
def test_keys_are_fetched_once_and_again(good_for: float, again_at: int) -> None:
    clock = FakeClock(0.0)
    fetches = Fetches(clock, good_for)
    keys = CredentialCache(fetches, clock=clock)
    ids = []
    for at in (0, again_at - 1, again_at, 2 * again_at - 1, 2 * again_at):
        clock.at = at
        ids.append(keys().secret_id)
    assert ids == ["id-1", "id-1", "id-2", "id-2", "id-3"]


def test_keys_are_used_to_their_end_while_they_cannot_be_renewed() -> None:
    clock = FakeClock(0.0)
    fetches = Fetches(clock)
    keys = CredentialCache(fetches, clock=clock)
    keys()
    fetches.failure = error(Unavailable)
    clock.at = 3599
    assert keys().secret_id == "id-1"
    clock.at = 3610
    with pytest.raises(Unavailable):
        keys()
    fetches.failure = None
    clock.at = 3620
    assert keys().secret_id.startswith("id-")


def test_a_service_that_fails_is_not_asked_with_every_call() -> None:
    clock = FakeClock(0.0)
    fetches = Fetches(clock)
    fetches.failure = error(Unavailable)
    keys = CredentialCache(fetches, clock=clock)
    for _ in range(5):
        with pytest.raises(Unavailable):
            keys()
    assert fetches.times == 1
    clock.advance(10)
    fetches.failure = None
    assert keys().secret_id == "id-2"


def test_a_service_that_fails_slowly_is_not_asked_with_every_call_either() -> None:
    clock = FakeClock(0.0)
    fetches = Fetches(clock)

    def slowly() -> Keys:
        clock.advance(10)
        return fetches()

    keys = CredentialCache(slowly, clock=clock)
    keys()
    fetches.failure, clock.at = error(Unavailable), 3400
    assert [keys().secret_id for _ in range(5)] == ["id-1"] * 5
    assert fetches.times == 2


def test_keys_are_fetched_when_the_clock_was_ahead_before() -> None:
    clock = FakeClock(7200.0)
    fetches = Fetches(clock)
    fetches.failure = error(Unavailable)
    keys = CredentialCache(fetches, clock=clock)
    with pytest.raises(Unavailable):
        keys()
    fetches.failure, clock.at = None, 0.0
    assert keys().secret_id == "id-2"


def test_keys_that_had_ended_when_they_came_name_the_clock() -> None:
    keys = CredentialCache(lambda: Keys("a", "b", "c", 5.0), clock=FakeClock(10.0))
    with pytest.raises(NotConfigured, match="clock"):
        keys()


def test_threads_that_need_keys_at_once_fetch_them_once() -> None:
    fetches, second = Fetches(FakeClock(0.0)), threading.Event()

    def slowly() -> Keys:
        found = fetches()
        second.wait(0.1)  # another thread has time to come here, too
        return found

    keys = CredentialCache(slowly, clock=fetches.clock)
    threads = [threading.Thread(target=keys) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetches.times == 1


# The machine's role


ROLE_KEYS = {
    "TmpSecretId": "AKIDrole",
    "TmpSecretKey": "key",
    "ExpiredTime": 1_800_000_000,
    "Expiration": "2027-01-15T08:00:00Z",
    "Token": "token",
    "Code": "Success",
}


def test_the_role_of_the_machine_is_found_and_its_keys_read() -> None:
    with serving(in_turn(answers(b"node-role\n"), answers(ROLE_KEYS))) as server:
        found = credentials.from_machine("", server.url + "/roles/")
    assert found == Keys("AKIDrole", "key", "token", 1_800_000_000)
    assert [asked.path for asked in server.asked] == ["/roles/", "/roles/node-role"]


def test_a_named_role_is_not_looked_up() -> None:
    with serving(in_turn(answers(ROLE_KEYS))) as server:
        credentials.from_machine("mine", server.url + "/roles/")
    assert [asked.path for asked in server.asked] == ["/roles/mine"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answers(b"not found", 404), id="404"),
        pytest.param(answers({"Code": "Failed"}), id="no keys"),
        pytest.param(answers(b"<html>"), id="HTML"),
        pytest.param(answers(b'{"TmpSecretId": "\xff"}'), id="not UTF-8"),
        pytest.param(resets, id="reset"),
        pytest.param(hangs, id="hangs"),
    ],
)
def test_a_machine_without_a_role_is_soon_known_not_to_be_configured(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "METADATA_TIMEOUT", 0.2)
    began = time.monotonic()
    with serving(in_turn(answer)) as server, pytest.raises(NotConfigured, match="metadata service"):
        credentials.from_machine("mine", server.url + "/")
    assert time.monotonic() - began < 20  # the server itself would make it wait 30 s


# The pod's identity


@pytest.fixture
def identity(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("jwt\n")
    return {
        "TKE_REGION": "ap-hongkong",
        "TKE_PROVIDER_ID": "provider",
        "TKE_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "TKE_ROLE_ARN": "arn",
    }


def test_the_pods_identity_is_exchanged_for_keys(identity: dict[str, str]) -> None:
    keys = {"TmpSecretId": "AKIDoidc", "TmpSecretKey": "key", "Token": "token"}
    with serving(in_turn(says(Credentials=keys, ExpiredTime=1_800_000_000))) as server:
        found = credentials.from_pod_identity(settings(server), identity)
    assert found == Keys("AKIDoidc", "key", "token", 1_800_000_000)
    (asked,) = server.asked
    assert asked.headers["authorization"] == "SKIP"
    assert asked.headers["x-tc-region"] == "ap-hongkong"
    assert asked.body == {
        "ProviderId": "provider",
        "WebIdentityToken": "jwt",
        "RoleArn": "arn",
        "RoleSessionName": "drawbridge",
        "DurationSeconds": 7200,
    }


def test_a_pod_without_an_identity_says_how_to_give_it_one(identity: dict[str, str]) -> None:
    with pytest.raises(NotConfigured, match=r"TKE_ROLE_ARN is not set.*role-arn"):
        credentials.from_pod_identity(CloudSettings(), {**identity, "TKE_ROLE_ARN": ""})
    Path(identity["TKE_WEB_IDENTITY_TOKEN_FILE"]).write_bytes(b"\xff")
    with pytest.raises(NotConfigured, match="cannot be read"):
        credentials.from_pod_identity(CloudSettings(), identity)
    with pytest.raises(NotConfigured, match="nowhere cannot be read"):
        credentials.from_pod_identity(
            CloudSettings(), {**identity, "TKE_WEB_IDENTITY_TOKEN_FILE": "/nowhere"}
        )


# All together


def test_without_a_region_there_is_no_edge() -> None:
    with pytest.raises(NotConfigured, match=r"cloud.region is empty"):
        caller(CloudSettings(), may_write=lambda: None, writes_within=10.0, sleep=time.sleep)


def test_the_edge_is_built_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with serving(in_turn(says(QuotaSet=[]))) as server:
        wanted = settings(server, region="ap-hongkong")
        ours = Cloud(caller(wanted, may_write=lambda: None, writes_within=10.0, sleep=time.sleep))
        assert server.asked == []
        assert ours.quotas() == []
    assert server.asked[0].headers["x-tc-region"] == "ap-hongkong"
