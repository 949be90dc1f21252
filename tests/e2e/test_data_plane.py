"""Whether packets reach a pod that has its IPs again on another host, through Calico's own data plane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.lab.errors import LabError
from tests.e2e.data_plane import POD, Host, free, missing, running, unreached
from tests.e2e.real import Real

Hosts = tuple[Host, Host, Host]


@pytest.fixture(params=["vxlan", "bgp"])
def hosts(request: pytest.FixtureRequest, real_nodes: Real) -> Iterator[Hosts]:
    if why := missing():
        pytest.skip(why)
    with running(real_nodes, request.param) as (first, second, third):
        yield first, second, third


def test_a_returning_pod_is_reached_wherever_it_comes_up(hosts: Hosts) -> None:
    first, second, third = hosts
    addresses = first.add(POD)
    assert unreached(hosts, addresses) == []

    former = first
    for host in (second, third, first, second):
        former.remove(POD)
        assert host.add(POD, addresses) == addresses
        assert unreached(hosts, addresses) == []
        former = host

    second.remove(POD)
    assert unreached([first], addresses, seconds=0) != []
    assert "blackhole" in first.routes(), "what would drop the packets of the former host"


def test_it_is_reached_after_its_host_has_failed(hosts: Hosts) -> None:
    first, second, third = hosts
    addresses = first.add(POD)
    assert unreached(hosts, addresses) == []

    first.fail()
    free(first.lab, addresses)
    assert second.add(POD, addresses) == addresses
    assert unreached([second, third], addresses) == []

    second.remove(POD)
    assert third.add(POD, addresses) == addresses
    assert unreached([second, third], addresses) == []


def test_after_a_host_failed_that_had_it_from_another_bgp_keeps_it_away_for_a_time(hosts: Hosts) -> None:
    """The others have a route to the IP on the failed host until their sessions with it end."""
    first, second, third = hosts
    addresses = first.add(POD)
    first.remove(POD)
    second.add(POD, addresses)
    assert unreached(hosts, addresses) == []

    second.fail()
    free(second.lab, addresses)
    if first.uses_vxlan:
        assert third.add(POD, addresses) == addresses
        assert unreached([first, third], addresses) == []
    else:
        with pytest.raises(LabError, match="already exists for an interface other than"):
            third.add(POD, addresses)
