"""The numbers of one check, asked of live brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from readers.store.store import DISCARD_TOPIC
from remoting.live.lookups import lookup
from rmqtx_cli.monitoring.measure import measured
from rmqtx_cli.monitoring.numbers import Numbers, StoreNumbers
from rmqtx_cli.monitoring.remembered import Became

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remoting.live.store_facts import LiveStore
    from rmqtx_cli.monitoring.numbers import Place
    from rmqtx_cli.sources.live_reading import LiveSource


def measure_live(source: LiveSource, now_ms: int, arguments: str) -> Numbers:
    """The numbers of the brokers. `arguments`: the options that lead to them again.

    Raises: Unreachable, NoAnswer, Refused.
    """
    return measured([_queue_numbers(fact) for fact in source.facts], source.pending(), now_ms, arguments)


def _queue_numbers(fact: LiveStore) -> StoreNumbers:
    return StoreNumbers(
        fact.root,
        is_in_use=True,
        half_next_offset=fact.half_cursor,
        half_max_offset=fact.half_end,
        discard_max_offset=max(0, fact.broker.max_offset(DISCARD_TOPIC)),
        check_interval_ms=fact.settings.transaction_check_interval_ms,
    )


def what_became_of_live(gone: Mapping[str, Place | None], source: LiveSource) -> Became:
    """What became of some transactions; those that expired are left out.

    Raises: Unreachable, NoAnswer, Refused.
    """
    rows = lookup(source.live.brokers, list(gone), pace=source.pace).table()
    return Became(dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True)))
