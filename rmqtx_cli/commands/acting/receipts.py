"""`rmqtx receipts`: list actions on transactions, and whether their effect still holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.readers.model.errors import BadRequest, NoSuchTransaction
from rmqtx.repairs.receipts.act_outcome import StandingWord
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    BrokerConfOption,
    BrokerVersionOption,
    FailOnOption,
    LimitOption,
    OutputFormat,
    OutputOptions,
    StoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.model.reading import Reading
    from rmqtx.repairs.receipts.receipts import Receipt
    from rmqtx.repairs.receipts.recheck import Standing
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import View
    from rmqtx_cli.pages.plan_page import KnownPlan
    from rmqtx_cli.sources.source import Source, SourceOpener

NAME = "receipts"
EXAMPLES = (
    Example("rmqtx receipts", "all actions, newest first"),
    Example("rmqtx receipts --since 1d --outcome unknown --outcome contradicted", "actions to look into"),
    Example("rmqtx receipts 20261121T112900.123456Z-4f3a9c", "one receipt in full; or give a transaction id"),
    Example("rmqtx receipts --plan plan.json", "how far a plan is"),
    Example(
        "rmqtx receipts --since 1d --recheck -n 10.0.0.1:9876",
        "test the effects again; exit status 1 if one is gone",
    ),
)

NameArgument = Annotated[
    str | None,
    typer.Argument(parser=stored_text, metavar="ID", help="Receipt id or its first characters, or transaction id"),
]
ActionOption = Annotated[
    list[str] | None, typer.Option("--action", metavar="ACTION", help="Only this action; repeatable")
]
OutcomeOption = Annotated[
    list[str] | None,
    typer.Option("--outcome", metavar="OUTCOME", help="Only this outcome; repeatable (values: rmqtx explain)"),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only actions begun since: 2h, 1d, or a time with a zone"),
]
RecheckOption = Annotated[
    bool, typer.Option("--recheck", help="Read each transaction again and test whether the effect still holds")
]
RecordOption = Annotated[
    bool, typer.Option("--record", help="With --recheck: record the result in the journal")
]
StoreOption = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="STORE", help="With --recheck: read this store instead of live brokers"),
]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", metavar="PLAN", help="Only acts of this plan file; print how far the plan is"),
]
JournalOption = Annotated[
    Path | None,
    typer.Option(
        "--journal", metavar="FILE", help="Read this journal; default: receipts.jsonl in the state directory"
    ),
]


@dataclass(frozen=True, slots=True)
class ChosenOptions:
    """Which receipts to list."""

    name: NameArgument = None
    action: ActionOption = None
    outcome: OutcomeOption = None
    since: SinceOption = None
    plan: PlanOption = None

    def chosen(self, voice: Voice) -> _Chosen:
        """Return the parsed conditions.

        Raises: BadRequest; UnreadableFile, BadText for a file that is not a plan.
        """
        from rmqtx_cli.pages.plan_page import KnownPlan

        since_ms = None if self.since is None else _since_ms(self.since, voice)
        plan = None if self.plan is None else KnownPlan.read(self.plan)
        return _Chosen(self.name, self.action, self.outcome, since_ms, plan)


@dataclass(frozen=True, slots=True)
class RecheckOptions:
    """Whether transactions are read again, and where."""

    recheck: RecheckOption = False
    record: RecordOption = False
    store: StoreOption = None

    def opener(self, live: LiveOptions, files: StoreOptions, voice: Voice) -> SourceOpener | None:
        """Return where to read transactions again; None without --recheck.

        Raises: BadRequest for options that exclude each other.
        """
        from rmqtx_cli.sources.source import chosen_opener

        if self.recheck:
            advice = "rmqtx receipts --recheck -n HOST:PORT, or --store STORE"
            return chosen_opener(self.store or (), live, files, voice, advice)
        given = {
            "--record": self.record, "--store": self.store, "-n or --broker": live.is_explicit,
            "--broker-conf": files.broker_conf, "--broker-version": files.broker_version,
        }
        for name, value in given.items():
            if value:
                raise BadRequest(f"{name} needs --recheck", advice="without --recheck only the journal is read")
        return None


@with_option_groups
def command(
    *,
    asked: ChosenOptions,
    where: WhereOption = None,
    limit: LimitOption = None,
    again: RecheckOptions,
    journal: JournalOption = None,
    fail_on: FailOnOption = None,
    output: OutputOptions,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """List the actions on transactions, newest first, or print one receipt in full.

    With --recheck each transaction is read again: does the effect still hold, and was the transaction decided otherwise
    since? The exit status is 1 if a transaction contradicts its receipt. With --plan the last lines print how far the
    plan is (done, unknown, refused, not begun), and the command that goes on.
    """
    from rmqtx.readers.model.reading import Reading
    from rmqtx.repairs.receipts.journal import Journal
    from rmqtx.repairs.receipts.receipts import RECEIPTS
    from rmqtx.repairs.receipts.recheck import record_recheck
    from rmqtx_cli.output.listing import Listing

    opener = again.opener(live, StoreOptions(None, broker_conf, broker_version), voice)
    chosen = asked.chosen(voice)
    schema = _rechecked_schema() if again.recheck else RECEIPTS
    book = Journal(journal)
    found = book.read()
    number = len(found.receipts)
    nothing = f"no match among {number} in {book.path}" if number else f"no receipts in {book.path}"
    listing = Listing(schema, view(nothing, with_standing=again.recheck), output, where, fail_on, limit, voice)
    receipts = _newest_first(found.receipts, chosen, asked.name, book.path)
    reading = Reading(schema, [], findings=found.findings)
    standings = {} if opener is None else _standings(receipts, opener, reading, voice)
    if again.record:
        for receipt in receipts:
            record_recheck(book, receipt, standings[receipt.receipt_id])
    _print(receipts, standings, listing, book.path, is_one=asked.name is not None)
    _say_standings(standings, voice)
    if chosen.plan is not None:
        for line in chosen.plan.progress_lines(found.receipts):
            voice.note(line)
    status = listing.conclude(reading)
    is_contradicted = any(one.word == StandingWord.CONTRADICTED for one in standings.values())
    return exit_status.FINDINGS if status == exit_status.DONE and is_contradicted else status


def _newest_first(receipts: list[Receipt], chosen: _Chosen, name: str | None, journal: Path) -> list[Receipt]:
    """Return the chosen receipts.

    Raises: NoSuchTransaction if the named receipt does not exist.
    """
    found = [receipt for receipt in reversed(receipts) if chosen.takes(receipt)]
    if name is not None and not found:
        raise NoSuchTransaction(f"no receipt {name} in {journal}", advice="list all: rmqtx receipts")
    return found


def _print(
    receipts: list[Receipt], standings: dict[str, Standing], listing: Listing, journal: Path, *, is_one: bool
) -> None:
    """Print one receipt as a page, several as a list."""
    from rmqtx.repairs.receipts.receipts import table
    from rmqtx_cli.output.streams import open_stream
    from rmqtx_cli.pages.receipts_page import draw_receipt
    from rmqtx_cli.words.text import count

    rows = table(receipts)
    if "standing" in listing.schema.names:
        rows = _with_standings(rows, listing.schema, standings)
    is_page = len(receipts) == 1 and is_one and listing.asked.fields is None
    if is_page and listing.format is OutputFormat.TABLE:
        with open_stream(listing.asked.output) as stream:
            draw_receipt(receipts[0], stream)
        for standing in standings.values():
            listing.voice.note(f"as of now: {standing.word}: {standing.reason}")
        return
    listing.write(iter(rows.to_batches()))
    if listing.rows_count:
        listing.voice.note(f"{count(listing.rows_count, 'receipt')} in {journal}")


def _since_ms(text: str, voice: Voice) -> int | None:
    """Return the time of an option, given as a time or as an age. Units: epoch milliseconds."""
    if text[:1].isdigit() and text[-1:].isalpha() and "T" not in text.upper():
        return time.time_ns() // 1_000_000 - parse_duration_ms(text)
    return asked_time_ms("--since", text, voice)


class _Chosen:
    """Conditions on receipts.

    Raises: BadRequest for an unknown action or outcome.
    """

    def __init__(
        self, name: str | None, actions: list[str] | None, outcomes: list[str] | None, since_ms: int | None,
        plan: KnownPlan | None,
    ) -> None:
        from rmqtx.repairs.receipts.act_kind import ActKind
        from rmqtx.repairs.receipts.act_outcome import OUTCOMES
        from rmqtx_cli.options.closed_values import check_value

        known = {"action": tuple(ActKind), "outcome": tuple(OUTCOMES)}
        for column, words in (("action", actions), ("outcome", outcomes)):
            for word in words or ():
                check_value(column, known[column], word, f"--{column}")
        self._name, self._actions, self._outcomes, self._since_ms = name, actions, outcomes, since_ms
        self.plan = plan

    def takes(self, receipt: Receipt) -> bool:
        """Return whether a receipt meets the conditions."""
        return (
            (self._name is None or receipt.receipt_id.startswith(self._name) or receipt.transaction_id == self._name)
            and (not self._actions or receipt.action in self._actions)
            and (not self._outcomes or receipt.outcome in self._outcomes)
            and (self._since_ms is None or receipt.begun_time_ms >= self._since_ms)
            and (self.plan is None or self.plan.is_of(receipt))
        )


# -- rechecking -------------------------------------------------------------------------------------------------------


def _standings(receipts: list[Receipt], opener: SourceOpener, reading: Reading, voice: Voice) -> dict[str, Standing]:
    """Return the standing of each receipt, from its transaction now; add findings to `reading`."""
    from rmqtx.repairs.receipts.recheck import rechecked
    from rmqtx.verdicts.model.transaction import Transaction
    from rmqtx_cli.words.progress import shown

    if not receipts:
        return {}
    with shown("rechecking", voice), opener.looked_up() as source:
        def look(ids: list[str]) -> Iterable[Transaction]:
            found = source.lookup(ids)
            rows = found.table().to_pylist()
            reading.findings.extend(found.findings)
            return map(Transaction.of, rows)

        again = rechecked(
            receipts, look, lambda: _cursors(source), lambda: [one.root for one in source.stores],
            source.present_conf,
        )
        return {receipt.receipt_id: standing for receipt, standing in again}


def _cursors(source: Source) -> Mapping[str, int] | None:
    """Return the cursors of the check; known only for the files of one store."""
    from rmqtx.readers.cursors.cursors import check_cursors
    from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC

    if len(source.stores) != 1:
        return None
    known = check_cursors(source.stores[0])
    if known.half is None or known.op is None:
        return None
    found = ((HALF_TOPIC, known.half.get(0)), (OP_TOPIC, known.op.get(0)))
    return {topic: cursor for topic, cursor in found if cursor is not None}


def _say_standings(standings: dict[str, Standing], voice: Voice) -> None:
    if not standings:
        return
    from rmqtx_cli.words.text import count

    words = [standing.word for standing in standings.values()]
    here = [word for word in words if word != StandingWord.OTHER_STORE]
    if here:
        voice.note("rechecked: " + ", ".join(f"{here.count(word)} {word}" for word in dict.fromkeys(here)))
    if len(here) < len(words):
        voice.note(f"not rechecked: {count(len(words) - len(here), 'act')} on other stores (column store)")


# -- rows -------------------------------------------------------------------------------------------------------------


def _rechecked_schema() -> pa.Schema:
    from rmqtx.repairs.receipts.receipts import RECEIPTS, RECHECK

    schema = RECEIPTS
    for name in ("standing", "standing_reason"):
        schema = schema.append(RECHECK.field(RECHECK.get_field_index(name)))
    return schema


def _with_standings(rows: pa.Table, schema: pa.Schema, standings: dict[str, Standing]) -> pa.Table:
    import pyarrow as pa

    found = [standings[name] for name in rows["receipt_id"].to_pylist()]
    columns = [pa.array([one.word for one in found], pa.string()), pa.array([one.reason for one in found], pa.string())]
    return pa.Table.from_arrays([*(column.combine_chunks() for column in rows.columns), *columns], schema=schema)


def view(nothing: str = "no receipts", *, with_standing: bool) -> View:
    """Return the view of receipts. `nothing`: the line instead of an empty table."""
    from rmqtx_cli.output.views import ALWAYS, Column, View, plain

    def latest(row: dict[str, Any]) -> str:
        return str(row["rechecks"][-1]["standing"]) if row["rechecks"] else ""

    more = [plain("standing", ALWAYS), plain("standing_reason", 1, "standing_reason", may_be_cut=True)]
    return View(
        (
            plain("receipt_id", ALWAYS), plain("action", ALWAYS), plain("transaction_id", ALWAYS),
            plain("outcome", ALWAYS), *(more if with_standing else [Column("since", ("rechecks",), latest, 2)]),
            plain("state_after", 4, "after"), plain("keys", 5, may_be_cut=True),
            plain("producer_group", 6, "group", may_be_cut=True), plain("who", 3, may_be_cut=True),
            plain("reason", 2, may_be_cut=True), plain("store", 7, may_be_cut=True),
        ),
        nothing,
    )  # fmt: skip
