"""An emulator in another process is steered and looked at over HTTP, and refuses nonsense."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cloud import Cloud, Knobs, serving
from lab.cloud.remote import Remote
from tests.sdk import sdk, without_proxies

ROOT = Path(__file__).parent.parent


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    with serving(Knobs(allocate_seconds=0)) as cloud:
        yield cloud


def ask(endpoint: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(endpoint, timeout=10)
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if answer.getheader("Content-Type") != "text/plain" else content


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"quota_total": 9, "colour": "red"}, "colour", id="unknown"),
        pytest.param({"quota_total": 9, "throttled": 1.5}, "throttled", id="more than all"),
        pytest.param({"quota_total": 9, "accounts": ["a"]}, "accounts", id="wrong type"),
        pytest.param(["quota_total"], "object", id="no object"),
    ],
)
def test_knobs_that_cannot_be_set_are_named_and_nothing_is_set(
    cloud: Cloud, changes: object, said: str
) -> None:
    status, answer = ask(cloud.endpoint, "PATCH", "/_emulator/knobs", changes)

    assert status == 400
    assert said in answer["error"]
    assert cloud.knobs.quota_total == 20


def test_the_state_is_shown_whole(cloud: Cloud) -> None:
    with sdk(cloud.endpoint) as call:
        call("CreateTag", TagKey="a", TagValue="b")
        call("AllocateAddresses", Tags=[{"Key": "a", "Value": "b"}])
    ask(cloud.endpoint, "POST", "/_emulator/instances", {"id": "ins-1", "private_ip": "10.0.0.1"})
    _, state = ask(cloud.endpoint, "GET", "/_emulator/state")

    assert [(each["status"], each["tags"]) for each in state["addresses"]] == [("UNBIND", {"a": "b"})]
    assert state["tags"] == [{"key": "a", "value": "b"}]
    assert state["instances"][0]["private_ip"] == "10.0.0.1"
    assert state["calls"] == {"CreateTag": {"OK": 1}, "AllocateAddresses": {"OK": 1}}
    assert state["running"] == []


def test_instances_come_and_go_and_addresses_are_changed_from_outside(cloud: Cloud) -> None:
    with sdk(cloud.endpoint) as call:
        (address,) = call("AllocateAddresses")["AddressSet"]
    ask(cloud.endpoint, "POST", "/_emulator/instances", {"id": "ins-1", "public_ip": "43.1.2.3"})
    ask(cloud.endpoint, "PATCH", "/_emulator/addresses", {"id": address, "changes": {"blocked": True}})

    assert cloud.world.addresses[address].blocked
    assert len(cloud.world.addresses) == 2
    ask(cloud.endpoint, "DELETE", "/_emulator/instances", {"id": "ins-1"})
    assert list(cloud.world.addresses) == [address]


def test_an_instance_gets_credentials_of_its_role_from_the_metadata_paths(cloud: Cloud) -> None:
    path = "/latest/meta-data/cam/security-credentials/"
    _, role = ask(cloud.endpoint, "GET", path)
    _, given = ask(cloud.endpoint, "GET", path + role.decode())

    assert given["Code"] == "Success"
    with sdk(cloud.endpoint, given["TmpSecretId"], given["TmpSecretKey"], given["Token"]) as call:
        assert call("DescribeAddresses")["TotalCount"] == 0


def test_the_program_serves_with_its_file_of_knobs_until_it_is_terminated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_proxies(monkeypatch)
    file = tmp_path / "knobs.json"
    file.write_text('{"quota_total": 7}')
    words = [sys.executable, "-m", "lab.cloud", "--knobs", str(file)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        endpoint = program.stdout.readline().strip().rpartition("/")[2]
        with sdk(endpoint) as call:
            assert 7 in {each["QuotaLimit"] for each in call("DescribeAddressQuota")["QuotaSet"]}
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0


def test_the_program_says_what_is_wrong_with_its_knobs(tmp_path: Path) -> None:
    file = tmp_path / "knobs.json"
    file.write_text('{"colour": "red"}')
    words = [sys.executable, "-m", "lab.cloud", "--knobs", str(file)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert "colour" in ended.stderr


def test_a_load_balancer_is_put_there_and_its_weights_are_read(cloud: Cloud) -> None:
    remote = Remote(cloud.endpoint)
    remote.put_load_balancer("lb-1", {"listener": "lbl-1", "instance": "ins-1", "port": 80, "weight": 0})

    assert remote.weights("lb-1") == {"ins-1:80": 0}
