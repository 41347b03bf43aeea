"""One broker of each version for all tests of forcing: starting it takes longer than most of them."""

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
QUICK = {"waitTimeMillsInTransactionQueue": "2000"}  # with less a busy machine's broker drops decisions (code 2)
QUICK_5 = {"transactionOpBatchInterval": "500"}
SLOW = "RMQTX_FORCING"
"""Set by `make test-forcing`: what takes too long for every day is played too."""


def quick(version: str) -> dict[str, str]:
    """Short waits, so that the ordinary run stays short."""
    return QUICK | (QUICK_5 if version.startswith("5.") else {})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker, and skip what cannot be run or is too slow for every day."""
    here = [item for item in items if "brokers/forcing" in str(item.path)]
    for item in here:
        item.add_marker(pytest.mark.broker)
        if WHY_NOT is not None:
            item.add_marker(pytest.mark.skip(reason=f"no broker can be run: {WHY_NOT}"))
        elif item.get_closest_marker("slow") is not None and not os.environ.get(SLOW):
            item.add_marker(pytest.mark.skip(reason="make test-forcing runs it"))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Keep for docs/forcing.md how many tests passed, where all of them were to be played."""
    if os.environ.get(SLOW):
        ended = {one: [report.nodeid for report in terminalreporter.stats.get(one, [])] for one in played.OUTCOMES}
        played.write(ended)


@pytest.fixture(scope="session", params=[version for version in VERSIONS if version >= "4.9"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker with its consumer, shared by the tests."""
    version = str(request.param)
    with Stage(version, tmp_path_factory.mktemp(f"forcing-{version}"), quick(version)) as found:
        yield found
