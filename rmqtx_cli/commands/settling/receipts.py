"""`rmqtx receipts`: list actions on transactions, and whether their effect still holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.errors import BadRequest, NoSuchTransaction
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from rmqtx.repairs.plans.draft_plan import KnownPlan
from rmqtx.repairs.receipts.act_words import OUTCOMES, ActKind, StandingWord
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import RECEIPTS, RECHECK, Receipt, table
from rmqtx.repairs.receipts.recheck import Standing, rechecked, record_recheck
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx_cli.commands.declared.settle import ChosenOptions, ReceiptsCommand, RecheckOptions
from rmqtx_cli.options.columns import check_value
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import OutputFormat, StoreOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.streams import open_stream
from rmqtx_cli.output.views import ALWAYS, Column, Row, View, plain
from rmqtx_cli.pages.plan_page import progress_lines
from rmqtx_cli.pages.receipts_page import draw_receipt
from rmqtx_cli.sources.source import AskedSource, Source, SourceOpener, chosen_opener
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import asked_time_ms, parse_duration_ms


def run(options: ReceiptsCommand) -> int:
    """Run the command; return its exit status."""
    opener = _opener(
        options.again, options.live, StoreOptions(None, options.broker_conf, options.broker_version), options.voice
    )
    chosen = _chosen(options.asked, options.voice)
    schema = _rechecked_schema() if options.again.recheck else RECEIPTS
    book = Journal(options.journal)
    found = book.read()
    number = len(found.receipts)
    nothing = f"no match among {number} in {book.path}" if number else f"no receipts in {book.path}"
    listing = Listing(
        schema, view(nothing, with_standing=options.again.recheck), options.output, options.where, options.fail_on,
        options.limit, options.voice,
    )
    receipts = _newest_first(found.receipts, chosen, options.asked.name, book.path)
    reading = Reading(schema, [], findings=found.findings)
    standings = {} if opener is None else _standings(receipts, opener, reading, options.voice)
    if options.again.record:
        for receipt in receipts:
            record_recheck(book, receipt, standings[receipt.receipt_id])
    _print(receipts, standings, listing, book.path, is_one=options.asked.name is not None)
    _say_standings(standings, options.voice)
    if chosen.plan is not None:
        for line in progress_lines(chosen.plan, found.receipts):
            options.voice.note(line)
    status = listing.conclude(reading)
    is_contradicted = any(one.word == StandingWord.CONTRADICTED for one in standings.values())
    return exit_status.FINDINGS if status == exit_status.DONE and is_contradicted else status


def _chosen(asked: ChosenOptions, voice: Voice) -> _Chosen:
    """Return the parsed conditions. Raises: BadRequest; UnreadableFile, BadText for a file that is not a plan."""
    since_ms = None if asked.since is None else _since_ms(asked.since, voice)
    plan = None if asked.plan is None else KnownPlan.read(asked.plan)
    return _Chosen(asked.name, asked.action, asked.outcome, since_ms, plan)


def _opener(again: RecheckOptions, live: LiveOptions, files: StoreOptions, voice: Voice) -> SourceOpener | None:
    """Return where to read transactions again; None without --recheck.

    Raises: BadRequest for options that exclude each other.
    """
    if again.recheck:
        advice = "rmqtx receipts --recheck -n HOST:PORT, or --store STORE"
        return chosen_opener(AskedSource(again.store or (), live, files), voice, advice)
    given = {
        "--record": again.record, "--store": again.store, "-n or --broker": live.is_explicit,
        "--broker-conf": files.broker_conf, "--broker-version": files.broker_version,
    }
    for name, value in given.items():
        if value:
            raise BadRequest(f"{name} needs --recheck", advice="without --recheck only the journal is read")
    return None


def _newest_first(receipts: list[Receipt], chosen: _Chosen, name: str | None, journal: Path) -> list[Receipt]:
    """Return the chosen receipts. Raises: NoSuchTransaction if the named receipt does not exist."""
    found = [receipt for receipt in reversed(receipts) if chosen.takes(receipt)]
    if name is not None and not found:
        raise NoSuchTransaction(f"no receipt {name} in {journal}", advice="list all: rmqtx receipts")
    return found


def _print(
    receipts: list[Receipt], standings: dict[str, Standing], listing: Listing, journal: Path, *, is_one: bool
) -> None:
    """Print one receipt as a page, several as a list."""
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
        return clock.now_ms() - parse_duration_ms(text)
    return asked_time_ms("--since", text, voice)


class _Chosen:
    """Conditions on receipts. Raises: BadRequest for an unknown action or outcome."""

    def __init__(
        self, name: str | None, actions: list[str] | None, outcomes: list[str] | None, since_ms: int | None,
        plan: KnownPlan | None,
    ) -> None:
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
    words = [standing.word for standing in standings.values()]
    here = [word for word in words if word != StandingWord.OTHER_STORE]
    if here:
        voice.note("rechecked: " + ", ".join(f"{here.count(word)} {word}" for word in dict.fromkeys(here)))
    if len(here) < len(words):
        voice.note(f"not rechecked: {count(len(words) - len(here), 'act')} on other stores (column store)")


# -- rows -------------------------------------------------------------------------------------------------------------


def _rechecked_schema() -> pa.Schema:
    schema = RECEIPTS
    for name in ("standing", "standing_reason"):
        schema = schema.append(RECHECK.field(RECHECK.get_field_index(name)))
    return schema


def _with_standings(rows: pa.Table, schema: pa.Schema, standings: dict[str, Standing]) -> pa.Table:
    found = [standings[name] for name in rows["receipt_id"].to_pylist()]
    columns = [pa.array([one.word for one in found], pa.string()), pa.array([one.reason for one in found], pa.string())]
    return pa.Table.from_arrays([*(column.combine_chunks() for column in rows.columns), *columns], schema=schema)


def view(nothing: str = "no receipts", *, with_standing: bool) -> View:
    """Return the view of receipts. `nothing`: the line instead of an empty table."""
    def latest(row: Row) -> str:
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
    )
