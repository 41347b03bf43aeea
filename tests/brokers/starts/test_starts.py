"""A few of the cases (`make test-starts` runs all): a start does what was foreseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import maven
from tests.brokers.starts.cases import CASES
from tests.brokers.starts.compare import compare
from tests.brokers.test_live import VERSIONS

WHY_NOT = maven.why_not()
NAMES = ("body in the middle", "last half slots zeroed")

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", VERSIONS[:1])
def test_a_start_does_what_was_foreseen(version: str, name: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    result = compare(case, version, tmp_path / "case")
    assert result.observed.end_offset is not None
    assert result.differences == []
