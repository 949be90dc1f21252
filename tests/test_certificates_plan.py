"""What is written next: value by value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from certs.ca_bundle import bundles_in, certificates_in, is_authority, pem_of, with_bundle
from certs.issue import Pair, check
from certs.rotation import (
    NOTHING,
    Held,
    Inject,
    NewAuthority,
    NewLeaf,
    data_with,
    has_new_authority,
    has_new_leaf,
    held_in,
    plan,
)
from tests.certificates import NAME, NOW, RULES, SECOND, authority, bundle, held, leaf

A, B, FOREIGN = authority(), authority(RULES.ca_validity + 30 * SECOND), authority(name="another CA")
ENDED = authority(-RULES.overlap)
JUST_ENDED = authority(-RULES.overlap + SECOND)
LEAF_A, LEAF_B = leaf(A[1]), leaf(B[1])
GOOD = held(A, leaf=LEAF_A)
LASTING = held(A, leaf=leaf(A[1], RULES.ca_validity))
ROTATING = held(B, A, leaf=LEAF_A)
NO, LONG = timedelta(0), RULES.overlap


def step(state: Held, *bundles: bytes, trusted_for: timedelta = NO, later: int = 0) -> str:
    """What is done, and with which authorities, in short."""
    names = {A[0]: "A", B[0]: "B", FOREIGN[0]: "foreign", JUST_ENDED[0]: "just ended", ENDED[0]: "ended"}
    match plan(state, bundles, trusted_for, RULES, NOW + later * SECOND):
        case NewAuthority(others=others):
            return " ".join(["new authority beside", *(names[each] for each in others)])
        case NewLeaf(signer=signer):
            return f"new leaf of {names[signer]}"
        case Inject(bundle=pem):
            return " ".join(["inject", *(names[each] for each in certificates_in(pem))])
        case None:
            return "nothing"


TORN = Pair(LEAF_A.certificate, LEAF_B.key)
RENEWAL = int((RULES.leaf_validity - RULES.renew_before).total_seconds())


@pytest.mark.parametrize(
    ("expected", "state", "bundles", "more"),
    [
        pytest.param("new authority beside", Held(), [b""], {}, id="an empty Secret"),
        pytest.param("new leaf of A", held(A, leaf=NOTHING), [b""], {}, id="no webhook trusts anything yet"),
        pytest.param("inject A", GOOD, [b"", bundle(A)], {}, id="a webhook without a bundle"),
        pytest.param("inject A", GOOD, [bundle(FOREIGN)], {}, id="a foreign authority"),
        pytest.param("inject A", GOOD, [bundle(A)[:-40]], {}, id="a damaged bundle"),
        pytest.param("nothing", GOOD, [bundle(A), bundle(A)], {}, id="all is well"),
        pytest.param("nothing", GOOD, [], {}, id="no webhook is registered"),
        pytest.param("nothing", GOOD, [bundle(A)], {"later": RENEWAL}, id="before the renewal"),
        pytest.param("new leaf of A", GOOD, [bundle(A)], {"later": RENEWAL + 1}, id="at the renewal"),
        pytest.param(
            "new leaf of A", GOOD, [b""], {"later": RENEWAL + 1}, id="a renewal comes before bundles"
        ),
        pytest.param("new leaf of A", held(A, leaf=TORN), [bundle(A)], {}, id="a torn pair"),
        pytest.param("new leaf of A", held(A, leaf=leaf(A[1], name="x")), [bundle(A)], {}, id="another name"),
        pytest.param("nothing", LASTING, [bundle(A)], {"later": 84}, id="before the authority's renewal"),
        pytest.param(
            "new authority beside A", LASTING, [bundle(A)], {"later": 85}, id="at the authority's renewal"
        ),
        pytest.param(
            "new authority beside A", Held((A[0],), B[1].key, LEAF_A), [bundle(A)], {}, id="another's key"
        ),
        pytest.param("new authority beside A", Held(), [bundle(A)], {}, id="the Secret is lost"),
        pytest.param("new authority beside", Held(), [bundle(FOREIGN)], {}, id="lost, and nothing is ours"),
        pytest.param("new authority beside", Held(), [bundle(ENDED)], {}, id="lost, and all has ended"),
        pytest.param("inject B A", ROTATING, [bundle(A)], {}, id="a new authority is to be known"),
        pytest.param("inject B A", ROTATING, [bundle(A, B)], {}, id="in another order"),
        pytest.param(
            "nothing", ROTATING, [bundle(B, A)], {"trusted_for": LONG - SECOND}, id="not yet for long enough"
        ),
        pytest.param("new leaf of B", ROTATING, [bundle(B, A)], {"trusted_for": LONG}, id="long enough"),
        pytest.param(
            "nothing", held(B, A, leaf=NOTHING), [bundle(B, A)], {}, id="a lost leaf of an unknown signer"
        ),
        pytest.param(
            "inject B A", held(B, leaf=LEAF_B), [bundle(B), bundle(A)], {}, id="one that a bundle alone has"
        ),
        pytest.param("nothing", held(B, A, leaf=LEAF_B), [bundle(B, A)], {}, id="the old one stays"),
        pytest.param(
            "inject B just ended",
            held(B, leaf=LEAF_B),
            [bundle(JUST_ENDED)],
            {},
            id="for clocks that are behind",
        ),
        pytest.param(
            "inject B", held(B, ENDED, leaf=LEAF_B), [bundle(B, ENDED)], {}, id="until it has ended"
        ),
    ],
)
def test_the_next_step(expected: str, state: Held, bundles: list[bytes], more: dict[str, Any]) -> None:
    assert step(state, *bundles, **more) == expected


def test_a_new_authority_keeps_the_leaf_and_forgets_the_old_key() -> None:
    after = has_new_authority(GOOD, NewAuthority((A[0],), ""), RULES, NOW)

    assert after.signer not in (None, A[0])
    assert after.authorities == (after.signer, A[0])
    assert after.authority_key != A[1].key
    assert after.leaf == LEAF_A


@pytest.mark.parametrize("spoilt", [TORN, Pair(b"x", LEAF_A.key), Pair(LEAF_A.certificate, b"x")])
def test_what_is_no_pair_is_not_kept(spoilt: Pair) -> None:
    assert has_new_authority(held(A, leaf=spoilt), NewAuthority((), ""), RULES, NOW).leaf == NOTHING


def test_certificates_begin_an_hour_ago_for_clocks_that_are_behind() -> None:
    after = has_new_authority(Held(), NewAuthority((), ""), RULES, NOW)
    assert after.signer is not None
    after = has_new_leaf(after, NewLeaf(after.signer, ""), RULES, NOW)

    hour_ago = NOW - timedelta(hours=1)
    assert check(after.leaf, Pair(pem_of(after.authorities), b""), NAME, hour_ago) is None
    assert after.signer.not_valid_after_utc == NOW + RULES.ca_validity


def test_a_leaf_does_not_outlive_its_authority() -> None:
    old = authority(20 * SECOND)
    (made,) = certificates_in(
        has_new_leaf(held(old, leaf=NOTHING), NewLeaf(old[0], ""), RULES, NOW).leaf.certificate
    )

    assert made.not_valid_after_utc == NOW + 20 * SECOND


def test_a_secret_is_read_as_it_was_written() -> None:
    data = data_with(ROTATING, {"mine": "eA==", "tls.crt": "old"})

    assert data["mine"] == "eA=="
    assert held_in(data) == ROTATING


def test_what_is_not_there_has_no_key_that_a_pod_could_mount() -> None:
    assert data_with(held(A, leaf=NOTHING), {"tls.crt": "old", "tls.key": "old"}).keys() == {
        "ca.crt",
        "ca.key",
    }


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"ca.crt": "not base64 at all!", "ca.key": "x", "tls.crt": "#"}, id="no base64"),
        pytest.param({"ca.crt": "eHh4", "ca.key": "eHh4", "tls.crt": "eHh4"}, id="no PEM"),
    ],
)
def test_a_damaged_secret_has_no_signer(data: dict[str, str]) -> None:
    assert held_in(data).signer is None
    assert step(held_in(data)) == "new authority beside"


def test_all_webhooks_of_a_configuration_get_the_bundle_and_keep_the_rest() -> None:
    before = {
        "metadata": {"name": "x"},
        "webhooks": [{"name": each, "clientConfig": {"url": each}} for each in "ab"],
    }
    after = with_bundle(before, bundle(A))

    assert bundles_in(before) == [b"", b""]
    assert bundles_in(after) == [bundle(A)] * 2
    assert [each["clientConfig"]["url"] for each in after["webhooks"]] == ["a", "b"]
    assert bundles_in({"metadata": {}}) == []


def test_a_leaf_of_our_name_is_no_authority() -> None:
    named = leaf(A[1], name=RULES.authority_name)

    assert is_authority(A[0], RULES.authority_name)
    assert not is_authority(certificates_in(named.certificate)[0], RULES.authority_name)
