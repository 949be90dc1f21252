"""What the labs of a session asked of their API servers, and whether they were allowed to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.lab.audit import VARIABLE
from tests import audit

RUN = "DRAWBRIDGE_TEST_AUDIT"
"""Names a directory in which a whole run, of many processes, leaves the logs of all its labs."""


@pytest.fixture(scope="session", autouse=True)
def audit_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No program of Drawbridge asks for anything that no role of it allows."""
    logs = Path(os.environ.get(RUN) or tmp_path_factory.mktemp("audit")) / f"worker-{os.getpid()}"
    logs.mkdir(parents=True, exist_ok=True)  # tests and storms in one process share it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(logs))
        yield logs
    refused = [str(request) for log in access_logs(logs) for request in log.refused]
    assert refused == [], refused  # nothing rewrites the assertions of this module


def access_logs(logs: Path) -> list[audit.AccessLog]:
    return [audit.read(log) for log in sorted(logs.rglob("*.log"))]
