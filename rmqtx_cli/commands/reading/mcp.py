"""`rmqtx mcp`: answer the questions of an assistant on stdin and stdout. Its tools read, and write plans; none acts.

A server may touch the stores, and the folder for plans, of its command line, and nothing else.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from rmqtx.api.acting import Plan
from rmqtx.api.brokers import Brokers
from rmqtx.api.results import Rows
from rmqtx.api.stores import Stores, open_stores
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest, MissingLibrary, RmqtxError
from rmqtx.remoting.connections.batched_reads import Pace
from rmqtx.remoting.live.lookups import pending as pending_on
from rmqtx.remoting.live.producer_list import connected_producers, producers_table
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import table as receipts_table
from rmqtx_cli.assistants import NOTICE, Answer
from rmqtx_cli.commands.all_views import all_views
from rmqtx_cli.commands.declared.data import McpCommand
from rmqtx_cli.commands.reading.explain import of_word, unknown_word
from rmqtx_cli.commands.reading.producers import pending_by_group
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.pages.glossary import entries
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.words.text import fully_escaped

_PLAN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.json")
#: The most transactions that one plan of an assistant names.
_IDS_MAX = 500
_LIVE_ONLY = "only for live brokers"


@dataclass(slots=True)
class Places:
    """Stores by the words of the command line. A name that an assistant gives is compared, never opened."""

    stores: Sequence[str]
    plans: Path | None = None
    _led_to: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in (*self.stores, *(() if self.plans is None else (str(self.plans),))):
            self._led_to[place] = os.path.realpath(place)
        if self.plans is not None and not self.plans.is_dir():
            raise BadRequest(f"--plans: {self.plans} is not a directory", advice=f"mkdir {self.plans}")

    def chosen(self, name: str) -> list[str]:
        """Return the store with this name, or all of them without one.

        Raises: BadRequest for any other name, and for a link that leads elsewhere since the start.
        """
        if name and name not in self.stores:
            raise BadRequest(
                f"the server may not read {fully_escaped(name[:100])!r}", advice=f"stores: {', '.join(self.stores)}"
            )
        chosen = [name] if name else list(self.stores)
        for one in chosen:
            self._require_same(one)
        return chosen

    def plan_file(self, name: str) -> Path:
        """Return the file for a plan, which does not exist yet. Raises: BadRequest."""
        if self.plans is None:
            raise BadRequest("the server writes no plans", advice="start it with --plans DIR")
        if not _PLAN_NAME.fullmatch(name):
            raise BadRequest(
                f"the server does not write {fully_escaped(name[:100])!r}",
                advice="a file name like plan-1.json: letters, digits, - _ and .",
            )
        self._require_same(str(self.plans))
        file = self.plans / name
        if os.path.lexists(file):
            raise BadRequest(f"{name} exists already", advice="give another name")
        return file

    def _require_same(self, place: str) -> None:
        if "://" not in place and os.path.realpath(place) != self._led_to[place]:
            raise BadRequest(f"{place} leads elsewhere since the start", advice="start the server again")


def run(options: McpCommand) -> int:
    """Serve until stdin ends; return the exit status."""
    options.live.instead_of(options.store or [], "rmqtx mcp STORE, or rmqtx mcp -n HOST:PORT")
    tools = Tools(Places(tuple(options.store or ()), options.plans), options.live, options.files)
    with tools.source(""):  # a wrong command line fails at once
        pass
    served(tools).run("stdio")
    return exit_status.DONE


def served(tools: Tools) -> Any:
    """Return the server of the SDK with these tools. Raises: MissingLibrary."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        raise MissingLibrary("the server needs the package mcp", advice="pip install 'rmqtx[mcp]'") from None
    server = MCPServer("rmqtx", instructions=tools.instructions(), log_level="WARNING")
    for tool in tools.all():
        is_plan = tool.__name__ == "plan"
        server.add_tool(
            tool, structured_output=False,
            annotations=ToolAnnotations(
                read_only_hint=not is_plan, destructive_hint=False, idempotent_hint=not is_plan, open_world_hint=False
            ),
        )
    return server


Store = Annotated[str, "one of the stores of the server; empty: all of them"]


class Tools:
    """The tools. Each returns one page as JSON; a tool that may not do something returns why."""

    def __init__(self, places: Places, live: LiveOptions, files: StoreOptions) -> None:
        self._places, self._live, self._files = places, live, files
        self._one_at_a_time = threading.Lock()

    def instructions(self) -> str:
        """What an assistant reads first."""
        where = ", ".join(self._places.stores) or "the live brokers given at the start"
        return (
            f"Reads transactional messages of Apache RocketMQ in: {where}. Nothing else can be read, and no tool acts "
            "on a transaction: `plan` writes a file that a person reviews and applies. Begin with `diagnose` for "
            "causes, or `pending` for what is open, `show` one id for its evidence, `explain` a word. An answer with "
            f"next_cursor has more: call again with cursor. {NOTICE}"
        )

    def all(self) -> tuple[Callable[..., str], ...]:
        """Return the tools."""
        return (
            self.pending, self.show, self.diagnose, self.verify, self.simulate, self.explain, self.receipts,
            self.producers, self.plan,
        )

    def pending(self, store: str = "", cursor: str = "") -> str:
        """List the pending transactions, oldest first, with state, deadline, advice and the offsets that prove it.

        store: one of the server's stores; empty for all.
        """
        return self._rows("pending", store, cursor, {}, lambda one: one.pending())

    def show(self, identity: str, store: str = "", cursor: str = "") -> str:
        """Show one transaction: state, reason, advice, causes, and every record that proves it, by offset.

        identity: transaction id, message id, business key, or a place like half:342 or at:327446.
        """
        return self._rows("show", store, cursor, {"identity": identity}, lambda one: one.show(identity))

    def diagnose(self, store: str = "", cursor: str = "") -> str:
        """Name the causes of unusual transactions: which behaviour or defect of the broker or producer it was.

        strength `explains`: the records prove the cause; `could_explain`: would_decide names what is missing.
        """
        return self._rows("diagnose", store, cursor, {}, lambda one: one.diagnose())

    def verify(self, store: str = "", level: str = "default", cursor: str = "") -> str:
        """Find damage and contradictions in the files of a store.

        level: quick, default or full.
        """
        return self._rows("verify", store, cursor, {"level": level}, lambda one: one.verify(level=level))

    def simulate(self, store: str = "", rounds: int = 3, cursor: str = "") -> str:
        """Predict the next rounds of the broker's check: what is asked, put back, discarded, and when."""
        return self._rows(
            "simulate", store, cursor, {"rounds": rounds}, lambda one: one.simulate(rounds=rounds)
        )

    def explain(self, word: str, cursor: str = "") -> str:
        """Explain a word of the answers: a state, flag, cause, finding, column, status or guard."""
        def answer(asked: Mapping[str, object]) -> Answer:
            known = entries(all_views())
            found = of_word(known, word)
            if not found:
                raise unknown_word(known, word)
            return Answer("explain", asked, [{"word": one.word, "kind": one.kind, "lines": one.lines} for one in found])

        return self._answer("explain", {"word": word}, cursor, answer)

    def receipts(self, transaction: str = "", cursor: str = "") -> str:
        """List what was done to transactions with rmqtx on this machine, newest first: action, time, outcome, reason.

        transaction: only this transaction id.
        """
        def answer(asked: Mapping[str, object]) -> Answer:
            found = Journal().read()
            chosen = [one for one in reversed(found.receipts) if not transaction or one.transaction_id == transaction]
            is_whole = not any(one.is_error for one in found.findings)
            return Answer(
                "receipts", asked, receipts_table(chosen).to_pylist(),
                exit_status.DONE if is_whole else exit_status.INCOMPLETE, is_whole, found.findings,
            )

        return self._answer("receipts", {"transaction": transaction}, cursor, answer)

    def producers(self, cursor: str = "") -> str:
        """List the producers that are connected to the live brokers, and how many transactions wait for each group."""
        def answer(asked: Mapping[str, object]) -> Answer:
            if self._places.stores:
                raise BadRequest(f"producers: {_LIVE_ONLY}")
            with open_live(self._live) as given:
                reading = pending_on(given.brokers)
                pending = pending_by_group(reading.table())
                found = [
                    connected_producers(one, {name for root, name in pending if root == one.root})
                    for one in given.brokers
                ]
                rows = producers_table(found, pending, None).to_pylist()
            is_whole = not reading.undecidable_count and not any(one.is_error for one in reading.findings)
            notes = [note for one in found if (note := one.note()) is not None]
            status = exit_status.DONE if is_whole else exit_status.INCOMPLETE
            return Answer("producers", asked, rows, status, is_whole, reading.findings, notes)

        return self._answer("producers", {}, cursor, answer)

    def plan(self, action: str, reason: str, transactions: list[str], file: str, store: str = "") -> str:
        """Write a plan file, for a person to review and apply. Nothing is done to a transaction.

        action: commit, rollback, discard, resume, close or redeliver. transactions: their ids. file: a name like
        plan-1.json, in the folder of the server.
        """
        asked = {"action": action, "reason": reason, "transactions": transactions, "file": file, "store": store}

        def answer(asked: Mapping[str, object]) -> Answer:
            if not 0 < len(transactions) <= _IDS_MAX:
                raise BadRequest(f"a plan takes 1 to {_IDS_MAX} ids", advice="pass them as transactions")
            place = self._places.plan_file(file)
            with self.source(store) as one:
                made: Plan = one.plan(action, reason=reason, ids=transactions)
                if made.steps:
                    made.write(place)
            refused = [f"{no.transaction_id}: not planned: {no.guard}: {no.why}" for no in made.refused]
            to_override = [f"{no.transaction_id}: apply refuses it: {no.guard}: {no.why}" for no in made.to_override]
            return Answer(
                "plan", asked, made.to_arrow().to_pylist(), made.status, made.is_complete, made.findings,
                [*refused, *to_override], more={"written": str(made.file) if made.file else None},
            )

        return self._answer("plan", asked, "", answer)

    @contextmanager
    def source(self, store: str) -> Iterator[Stores | Brokers]:
        """Open what the server may read. Raises: BadRequest for anything else."""
        if self._places.stores:
            yield open_stores(
                *self._places.chosen(store), broker_conf=self._files.broker_conf,
                broker_version=self._files.broker_version, commit_log=self._files.commit_log or (),
            )
            return
        if store:
            raise BadRequest("the server reads live brokers, and no store", advice="leave out store")
        with open_live(self._live) as given:
            yield Brokers(given.client, given.brokers, given.members, Pace(None))

    def _rows(
        self, tool: str, store: str, cursor: str, more: Mapping[str, object],
        ask: Callable[[Stores | Brokers], Rows[Any]],
    ) -> str:
        def answer(asked: Mapping[str, object]) -> Answer:
            with self.source(store) as one:
                rows = ask(one)
                values = cast("Sequence[Mapping[str, object]]", rows.to_arrow().to_pylist())
                return Answer(tool, asked, values, rows.status, rows.is_complete, rows.findings, rows.notes)

        return self._answer(tool, {"store": store, **more}, cursor, answer)

    def _answer(
        self, tool: str, asked: Mapping[str, object], cursor: str, answer: Callable[[Mapping[str, object]], Answer]
    ) -> str:
        try:
            with self._one_at_a_time:
                return answer(asked).text(cursor)
        except RmqtxError as error:
            return Answer.of_error(tool, asked, error).text("")
