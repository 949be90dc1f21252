"""What is written next: value by value."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certs.issue import Pair, check
from certs.rotation import (
    NOTHING,
    Held,
    Inject,
    NewAuthority,
    NewLeaf,
    bundles_in,
    certificates_in,
    data_with,
    held_in,
    is_authority,
    pem_of,
    plan,
    with_bundle,
)
from tests.certificates import NAME, NOW, RULES, SECOND, authority, bundle, held, leaf, of_version

A, B, FOREIGN = authority(), authority(RULES.ca_validity + 30 * SECOND), authority(name="another CA")
ENDED = authority(-RULES.overlap)
JUST_ENDED = authority(-RULES.overlap + SECOND)
ENDLESS = authority(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - NOW, "of an issuer")
"""As RFC 5280 writes an end that is not known."""
LEAF_A, LEAF_B = leaf(A[1]), leaf(B[1])
GOOD = held(A, leaf=LEAF_A)
LASTING = held(A, leaf=leaf(A[1], RULES.ca_validity))
ROTATING = held(B, A, leaf=LEAF_A)
NO, LONG = timedelta(0), RULES.overlap


def step(state: Held, *bundles: bytes, trusted_for: timedelta = NO, later: int = 0) -> str:
    """What is done, and with which authorities, in short."""
    names = {A[0]: "A", B[0]: "B", FOREIGN[0]: "foreign", JUST_ENDED[0]: "just ended", ENDED[0]: "ended"}
    names[ENDLESS[0]] = "endless"
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


STEPS: dict[str, tuple[str, Held, list[bytes], dict[str, Any]]] = {
    "an empty Secret": ("new authority beside", Held(), [b""], {}),
    "no webhook trusts anything yet": ("new leaf of A", held(A, leaf=NOTHING), [b""], {}),
    "a webhook without a bundle": ("inject A", GOOD, [b"", bundle(A)], {}),
    "a foreign authority": ("inject A", GOOD, [bundle(FOREIGN)], {}),
    "a damaged bundle": ("inject A", GOOD, [bundle(A)[:-40]], {}),
    "all is well": ("nothing", GOOD, [bundle(A), bundle(A)], {}),
    "no webhook is registered": ("nothing", GOOD, [], {}),
    "before the renewal": ("nothing", GOOD, [bundle(A)], {"later": RENEWAL}),
    "at the renewal": ("new leaf of A", GOOD, [bundle(A)], {"later": RENEWAL + 1}),
    "a renewal comes before bundles": ("new leaf of A", GOOD, [b""], {"later": RENEWAL + 1}),
    "a torn pair": ("new leaf of A", held(A, leaf=TORN), [bundle(A)], {}),
    "another name": ("new leaf of A", held(A, leaf=leaf(A[1], name="x")), [bundle(A)], {}),
    "before the authority's renewal": ("nothing", LASTING, [bundle(A)], {"later": 84}),
    "at the authority's renewal": ("new authority beside A", LASTING, [bundle(A)], {"later": 85}),
    "by a clock that was ahead": ("new authority beside A", GOOD, [bundle(A)], {"later": -3601}),
    "another's key": ("new authority beside A", Held((A[0],), B[1].key, LEAF_A), [bundle(A)], {}),
    "the Secret is lost": ("new authority beside A", Held(), [bundle(A)], {}),
    "lost, and nothing is ours": ("new authority beside", Held(), [bundle(FOREIGN)], {}),
    "lost, and all has ended": ("new authority beside", Held(), [bundle(ENDED)], {}),
    "a new authority is to be known": ("inject B A", ROTATING, [bundle(A)], {}),
    "in another order": ("inject B A", ROTATING, [bundle(A, B)], {}),
    "not yet for long enough": ("nothing", ROTATING, [bundle(B, A)], {"trusted_for": LONG - SECOND}),
    "long enough": ("new leaf of B", ROTATING, [bundle(B, A)], {"trusted_for": LONG}),
    "a lost leaf of an unknown signer": ("nothing", held(B, A, leaf=NOTHING), [bundle(B, A)], {}),
    "one that a bundle alone has": ("inject B A", held(B, leaf=LEAF_B), [bundle(B), bundle(A)], {}),
    "the old one stays": ("nothing", held(B, A, leaf=LEAF_B), [bundle(B, A)], {}),
    "for clocks that are behind": ("inject B just ended", held(B, leaf=LEAF_B), [bundle(JUST_ENDED)], {}),
    "one without an end": ("inject A endless", held(A, ENDLESS, leaf=LEAF_A), [bundle(ENDLESS)], {}),
    "until it has ended": ("inject B", held(B, ENDED, leaf=LEAF_B), [bundle(B, ENDED)], {}),
}


@pytest.mark.parametrize(("expected", "state", "bundles", "more"), STEPS.values(), ids=STEPS)
def test_the_next_step(expected: str, state: Held, bundles: list[bytes], more: dict[str, Any]) -> None:
    assert step(state, *bundles, **more) == expected


def test_a_new_authority_keeps_the_leaf_and_forgets_the_old_key() -> None:
    after = NewAuthority((A[0],), "").on(GOOD, RULES, NOW)

    assert after.signer not in (None, A[0])
    assert after.authorities == (after.signer, A[0])
    assert after.authority_key != A[1].key
    assert after.leaf == LEAF_A


@pytest.mark.parametrize("spoilt", [TORN, Pair(b"x", LEAF_A.key), Pair(LEAF_A.certificate, b"x")])
def test_what_is_no_pair_is_not_kept(spoilt: Pair) -> None:
    assert NewAuthority((), "").on(held(A, leaf=spoilt), RULES, NOW).leaf == NOTHING


def test_certificates_begin_an_hour_ago_for_clocks_that_are_behind() -> None:
    after = NewAuthority((), "").on(Held(), RULES, NOW)
    assert after.signer is not None
    after = NewLeaf(after.signer, "").on(after, RULES, NOW)

    hour_ago = NOW - timedelta(hours=1)
    assert check(after.leaf, after.authorities[0], NAME, hour_ago) is None
    assert after.signer.not_valid_after_utc == NOW + RULES.ca_validity


def test_a_new_certificate_is_not_due_at_once_however_close_to_it_the_settings_are() -> None:
    close = RULES.renew_before + timedelta(milliseconds=100)
    rules, now = replace(RULES, leaf_validity=close, ca_validity=close), NOW + SECOND / 2
    made = NewAuthority((), "").on(Held(), rules, now)
    assert made.signer is not None
    after = NewLeaf(made.signer, "").on(made, rules, now)

    assert plan(after, [pem_of(after.authorities)], NO, rules, now) is None


def test_a_leaf_does_not_outlive_its_authority() -> None:
    old = authority(20 * SECOND)
    (made,) = certificates_in(NewLeaf(old[0], "").on(held(old, leaf=NOTHING), RULES, NOW).leaf.certificate)

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


def test_a_certificate_of_a_version_that_none_has_is_skipped() -> None:
    pem = A[1].certificate.decode()

    assert len(certificates_in(pem.encode())) == 1
    assert certificates_in(of_version(pem, 102).encode()) == []
