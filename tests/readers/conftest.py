"""Fixtures of the tests of readers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqtx.readers.log.kernels import is_accelerator_installed, use_accelerator


@pytest.fixture(params=["reference", "accelerator"], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both loops must find the same."""
    if request.param == "accelerator" and not is_accelerator_installed():
        pytest.skip("numba (extra `fast`) is not installed")
    use_accelerator(request.param == "accelerator")
    yield
    use_accelerator(False)
