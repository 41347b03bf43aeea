"""A plugin of pytest: an example that fails is not made short. One failure kills a mutant; shortening takes minutes."""

from __future__ import annotations


def pytest_collection() -> None:
    """Before tests are imported, as each keeps the settings of that moment; after tests/conftest.py chose others."""
    from hypothesis import Phase, settings  # pytest itself imports it first, or warns

    settings.register_profile("unshrunk", parent=settings.default, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("unshrunk")
