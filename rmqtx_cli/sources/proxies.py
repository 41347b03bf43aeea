"""The configuration of proxies in front of brokers, as a fact that causes read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verdicts.model.store_evidence import StoreEvidence


def behind_proxies(stores: Mapping[str, StoreEvidence], proxy_conf: Path | None) -> dict[str, StoreEvidence]:
    """Return the facts of stores with what the configuration of their proxies sets, if a file is given.

    Raises: UnreadableFile, BadText.
    """
    from readers.store.proxy_conf import read_expire_ms

    if proxy_conf is None:
        return dict(stores)
    expire_ms = read_expire_ms(proxy_conf)
    return {name: replace(one, proxy_keeps_ms=expire_ms) for name, one in stores.items()}
