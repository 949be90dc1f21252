"""The chart and the programs agree on values: what the one accepts, the other accepts, and means the same."""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

import pytest
import yaml

from dev.lab import chart
from dev.lab.errors import LabError
from dev.lab.values_schema import SETTINGS
from settings import Settings, SettingsError, parse
from tests.charts import NAMESPACE, as_yaml, helm_needed
from tests.values_fuzz import LEAVES, Drawn, draw, put, resolved, verdicts

pytestmark = helm_needed
STRICTER = {
    "certs.mode",  # `files` needs a Secret
    "controllers.leaseDuration",  # in whole seconds
    "health.healthProbeBindAddress",  # kubelets reach it
}
"""Values of which the chart knows more than the program."""
ADDED_TO = "elasticity.excludedNamespaces"
"""The chart adds the release's."""
FORM_ALONE = re.compile(
    r"webhook\.clientCA: |elasticity\.maxSuperPods\.budgets\[\d+\]\.hours\[\d+\]\.(timeZone|duration): "
)
"""What a block of PEM says, which time zones there are and how long hours last is read by the program alone."""


def verdict(drawn: Drawn, answer: dict[str, str]) -> str:
    """What is wrong with the chart's *answer*, or nothing."""
    if "broken" in answer:
        return f"renders no YAML: {answer['broken']}"
    found = settings_of(answer["config"]) if "config" in answer else None
    if isinstance(found, SettingsError):
        problems = [each for each in found.problems if not FORM_ALONE.match(each)]
        return f"the chart accepts what the program refuses: {problems}" if problems else ""
    return difference(drawn, found)


@functools.cache
def settings_of(config: str) -> Settings | SettingsError:
    try:
        return parse(config)
    except SettingsError as error:
        return error


def difference(drawn: Drawn, found: Settings | None) -> str:
    """Between a value on its way through the chart, and the same written into the file, where numbers may be text."""
    [(path, value), *others] = drawn.changes.items()
    if others or drawn.base or path not in SETTINGS or path == ADDED_TO:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # which Helm makes of it
    direct = settings_of(written(SETTINGS[path], value))
    if found is None:
        is_text = resolved(LEAVES[path]).get("type") == "string"
        strange = is_text and isinstance(direct, Settings) and path not in STRICTER
        return "the chart refuses what the program accepts" if strange else ""
    same = isinstance(value, dict) or at(direct, SETTINGS[path]) == at(found, SETTINGS[path])
    return "" if same else f"the program gets {at(found, SETTINGS[path])!r}"


@functools.cache
def default() -> str:
    [answer] = verdicts([Drawn(0, {})])
    return answer["config"]


def written(setting: str, value: Any) -> str:
    document = yaml.load(default(), Loader=yaml.CSafeLoader)
    put(document, setting.split("."), value)
    return str(yaml.dump(document, Dumper=yaml.CSafeDumper))


def at(settings: Settings | SettingsError, setting: str) -> Any:
    if isinstance(settings, SettingsError):
        return settings
    value: Any = settings.model_dump(by_alias=True)
    for part in setting.split("."):
        value = value[part]
    return value


def judge(seed: int, count: int) -> Counter[tuple[str, bool]]:
    """How often each value was in an accepted and in a refused set."""
    drawn = list(draw(seed, count))
    answers = verdicts(drawn)
    problems = [
        f"{each.base} {each.changes}: {problem}"
        for each, answer in zip(drawn, answers, strict=True)
        if (problem := verdict(each, answer))
    ]
    assert not problems, "\n".join([f"{len(problems)} of {count}:", *problems[:20]])
    return Counter(
        (path, "config" in answer)
        for each, answer in zip(drawn, answers, strict=True)
        for path in each.changes
    )


@pytest.mark.promise
def test_a_sample_of_values_is_judged_alike() -> None:
    judge(seed=1, count=200)


@pytest.mark.promise
def test_values_that_were_judged_differently_are_judged_alike() -> None:
    once = {
        "image.pullPolicy": None,
        "elasticity.localReplicas": 2**31 - 1,
        "anycastIP.bandwidthPackageID": "\U0001f600",
    }
    drawn = [Drawn(0, {path: value}) for path, value in once.items()]

    found = map(verdict, drawn, verdicts(drawn))
    assert dict(zip(once, found, strict=True)) == dict.fromkeys(once, "")


@pytest.mark.slow
def test_values_of_all_kinds_are_judged_alike() -> None:
    seen = judge(seed=6, count=6000)

    assert {path for path in LEAVES if not seen[path, True]} == set(), "never accepted"
    assert {path for path in LEAVES if not seen[path, False]} == set(), "never refused"


@pytest.mark.promise
def test_helm_itself_says_the_same() -> None:
    drawn = list(draw(seed=3, count=20))

    assert [helm(each) for each in drawn] == ["config" in answer for answer in verdicts(drawn)]


def helm(drawn: Drawn) -> bool:
    try:
        return bool(
            chart.manifests(as_yaml(drawn.values), f"--namespace={NAMESPACE}", "--kube-version=v1.30.0")
        )
    except LabError:
        return False
