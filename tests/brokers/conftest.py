"""What tests of real brokers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import real_moment


@pytest.fixture(autouse=True, scope="module")
def _at_the_real_moment() -> Iterator[None]:
    """Their stores were written just now."""
    with real_moment():
        yield
