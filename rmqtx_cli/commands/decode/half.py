"""`rmqtx decode half`: the half copies of transactions."""

from __future__ import annotations

from rmqtx_cli.commands.declared.decode import DecodeHalf
from rmqtx_cli.commands.decode.shared import asked_of, bounds_of, list_readings
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.source import AskedSource, chosen_opener


def run(options: DecodeHalf) -> int:
    """Run the command; return its exit status."""
    asked = asked_of(options.rows, options.store or [], options.voice)
    bounds = bounds_of(options.within, options.voice)
    named = {"--topic": ("real_topic", options.topic), "--group": ("producer_group", options.group)}
    advice = "rmqtx decode half STORE, or rmqtx decode half -n HOST:PORT"
    opener = chosen_opener(
        AskedSource(asked.stores, options.live, StoreOptions(options.commit_log), options.rate), options.voice, advice,
        {"--coverage": options.rows.coverage},
    )
    with opener.tables(asked.output.output) as tables:
        return list_readings(asked, "halves", lambda: tables.halves(bounds), named=named)
