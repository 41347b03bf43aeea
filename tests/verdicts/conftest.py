"""What tests of readers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forge.stores import copy_of
from tests.verdicts.verifying import CLEAN


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A store that was stopped cleanly, to be damaged."""
    return copy_of(CLEAN, tmp_path)
