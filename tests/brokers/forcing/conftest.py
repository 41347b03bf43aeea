"""One broker of each version for all tests of forcing: its start takes longer than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter

from tests.brokers import maven
from tests.brokers.forcing import played
from tests.brokers.forcing.stage import Stage

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split()
WHY_NOT = maven.why_not()
QUICK = {"waitTimeMillsInTransactionQueue": "2000"}  # with less, a broker on a busy machine drops decisions (code 2)
QUICK_5 = {"transactionOpBatchInterval": "500"}
SLOW = "RMQTX_FORCING"
"""Set by `make test-forcing`: also run the slow tests."""


def quick(version: str) -> dict[str, str]:
    """Settings with short waits, for ordinary runs of the tests."""
    return QUICK | (QUICK_5 if version.startswith("5.") else {})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a broker; skip those that cannot be run here, and the slow ones in ordinary runs."""
    here = [item for item in items if "brokers/forcing" in str(item.path)]
    for item in here:
        item.add_marker(pytest.mark.broker)
        if WHY_NOT is not None:
            item.add_marker(pytest.mark.skip(reason=f"no broker can be run: {WHY_NOT}"))
        elif item.get_closest_marker("slow") is not None and not os.environ.get(SLOW):
            item.add_marker(pytest.mark.skip(reason="make test-forcing runs it"))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Store for docs/forcing.md how many tests passed, if this run included all."""
    if os.environ.get(SLOW):
        ended = {one: [report.nodeid for report in terminalreporter.stats.get(one, [])] for one in played.OUTCOMES}
        played.write(ended)


@pytest.fixture(scope="session", params=[version for version in VERSIONS if version >= "4.9"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker with its consumer, shared by the tests."""
    version = str(request.param)
    with Stage(version, tmp_path_factory.mktemp(f"forcing-{version}"), quick(version)) as found:
        yield found
