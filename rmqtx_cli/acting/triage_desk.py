"""The questions of `rmqtx triage`: one transaction or one group after the other, on a terminal, line by line.

Nothing is cleared or redrawn: each question is printed below the last one, so it reads the same over ssh, in a log of
the terminal and to a screen reader.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from rmqtx.readers.log.record_values import message_of
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest, FormatError, RmqtxError
from rmqtx.readers.model.findings import few
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.verdicts.causes.diagnosing import CauseRow
from rmqtx.verdicts.model.predicted import deadline_of
from rmqtx_cli.acting.plan_writing import say_refused
from rmqtx_cli.options.asking import answered, typed
from rmqtx_cli.options.next_commands import with_places
from rmqtx_cli.output.page import write_lines
from rmqtx_cli.output.streams import open_stream
from rmqtx_cli.pages.headlines import deadline_text
from rmqtx_cli.sources.transaction_page import write_page
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, escaped, of_group, size
from rmqtx_cli.words.times import duration_text

if TYPE_CHECKING:
    from rmqtx.repairs.acts.situation import Situation
    from rmqtx.repairs.plans.draft_plan import PlanDraft
    from rmqtx.repairs.plans.triage import Triage
    from rmqtx.repairs.stand_in.answer_source import GivenAnswer
    from rmqtx.verdicts.model.predicted import Prediction
    from rmqtx_cli.sources.source import SourceOpener

_ALL, _WHY, _BODY, _UNDO, _QUIT, _HELP, _SINGLY = "all", "why", "body", "undo", "quit", "help", "one by one"
_SKIP = "skip"
#: The keys, each with its word, which may be typed too.
_KEYS = {
    "c": str(ActKind.COMMIT), "r": str(ActKind.ROLLBACK), "e": str(ActKind.RESUME), "d": str(ActKind.DISCARD),
    "s": _SKIP, "a": _ALL, "w": _WHY, "b": _BODY, "u": _UNDO, "q": _QUIT, "h": _HELP, "?": _HELP, "o": _SINGLY,
}
_ACTS = (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.RESUME, ActKind.DISCARD)
_ANSWERS = (*map(str, _ACTS), _SKIP)
#: The keys in two lines: the second is the prompt.
_ONE = (
    "c commit, r rollback, e resume, d discard, s skip, a all of this group,",
    "w why, b body, u undo, q quit, h help: ",
)
_MANY = (
    "for all of them: c commit, r rollback, e resume, d discard, s skip;",
    "o one by one, u undo, q quit, h help: ",
)
_EACH = (_MANY[0], "Return goes back: ")
_HELP_TEXT = """\
c  commit: deliver the message
r  rollback: end the transaction without delivery
e  resume: have a discarded transaction checked again
d  discard: keep a copy of the message, then roll back
s  skip: no answer now; the next start asks again, at the end
a  all of this group: one answer for all transactions of this group and topic
w  why: what the guards allow, and what follows from the causes
b  body: print the body of the message
u  undo: take back the last answer
q  quit: write the plan; the same command goes on later
o  one by one, where a group is asked about
Nothing is sent: the answers become a plan, and rmqtx apply carries it out."""
_BODY_CHARACTERS_MAX = 4_000
_LABEL_CELLS = 8
#: Why a triage needs a terminal.
NO_TERMINAL = BadRequest(
    "cannot ask: standard input is not a terminal", advice="without a terminal: rmqtx plan, or rmqtx reconcile --plan"
)


class _Next(Enum):
    """What follows after a typed line."""

    AGAIN = auto()
    MOVE_ON = auto()
    QUIT = auto()


@dataclass(slots=True)
class Desk:
    """The questions about the transactions of a triage.

    Shape: `predicted`: the check of each store, for deadlines; `ledger`: the ledger's answer for each transaction, if a
           ledger is given.
    """

    triage: Triage
    opener: SourceOpener
    predicted: Mapping[str, Prediction]
    ledger: Mapping[str, GivenAnswer]
    voice: Voice
    is_plain: bool = False
    by_group: bool = False
    _causes: list[CauseRow] = field(default_factory=list)
    _opened: set[tuple[str | None, str | None]] = field(default_factory=set)

    def run(self) -> bool:
        """Ask until every transaction has an answer, and return True; False if the operator quits before.

        Raises: UnwritableFile if an answer cannot be kept; KeyboardInterrupt.
        """
        while left := self.triage.left():
            name = left[0]
            is_group = self.by_group and self.triage.group_of(name) not in self._opened
            if (self._ask_group(name) if is_group else self._ask_one(name)) is _Next.QUIT:
                return False
        return True

    # -- one transaction ----------------------------------------------------------------------------------------------

    def _ask_one(self, name: str) -> _Next:
        self._show_one(name)
        while True:
            following = self._taken(_typed(_ONE), name)
            if following is not _Next.AGAIN:
                return following

    def _taken(self, line: str | None, name: str) -> _Next:
        word = _word(line)
        if word == _QUIT:
            return _Next.QUIT
        if word in _ANSWERS:
            return self._answer([name], word)
        if word == _ALL:
            return self._ask_all(name)
        if word == _UNDO:
            return self._undo()
        if word == _WHY:
            self._print(self._why(name))
        elif word == _BODY:
            self._print(_body_lines(self.triage.situations[name]), 0)
        else:
            say.lines(_HELP_TEXT if word == _HELP else "type one of the letters c r e d s a w b u q h, then Return")
        return _Next.AGAIN

    def _show_one(self, name: str) -> None:
        left = self.triage.left()
        total = len(self.triage.situations)
        same = count(len(self.triage.left_with(name)), "transaction")
        head = f"{len(left)} of {total} left, {same} of {of_group(*self.triage.group_of(name))}"
        self._print(["", head, ""] if not self.is_plain else [head])
        with open_stream(None) as stream:
            try:
                self._causes = write_page(self.opener, name, stream, is_plain=self.is_plain)
            except RmqtxError as error:  # it may be answered by what was read before
                self._causes = []
                say.error(f"cannot read it again: {error}")
        self._print(self._ledger_lines([name]))

    def _why(self, name: str) -> Iterator[str]:
        for action in _ACTS:
            draft = self.triage.tested([name], action)
            refusal = next((one for _, one in (*draft.refused, *draft.to_override)), None)
            words = "the guards allow it now" if refusal is None else f"refused by {with_places(str(refusal))}"
            yield f"{action:<9}{words}"
        for row in self._causes:
            yield f"{row['cause']}: {row['consequence']}"
            yield f"{'':<9}do now: {row['act']}"
        if not self._causes:
            yield "no known cause fits"

    # -- a group ------------------------------------------------------------------------------------------------------

    def _ask_group(self, name: str) -> _Next:
        names = self.triage.left_with(name)
        self._print(["", *self._group_lines(names)])
        while True:
            word = _word(_typed(_MANY))
            if word == _QUIT:
                return _Next.QUIT
            if word == _SINGLY:
                self._opened.add(self.triage.group_of(name))
                return _Next.MOVE_ON
            if word == _UNDO:
                following = self._undo()
            elif word in _ANSWERS:
                following = self._answer(names, word)
                if following is _Next.MOVE_ON and set(names) & set(self.triage.left()):
                    self._opened.add(self.triage.group_of(name))  # the guards refuse some: these are asked one by one
            else:
                say.lines(_HELP_TEXT if word == _HELP else "type one of the letters c r e d s o u q h, then Return")
                following = _Next.AGAIN
            if following is not _Next.AGAIN:
                return following

    def _ask_all(self, name: str) -> _Next:
        names = self.triage.left_with(name)
        self._print(self._group_lines(names))
        word = _word(_typed(_EACH))
        return self._answer(names, word) if word in _ANSWERS else _Next.AGAIN

    def _group_lines(self, names: Sequence[str]) -> Iterator[str]:
        rows = [self.triage.situations[name].transaction for name in names]
        now_ms = clock.now_ms()
        yield f"{count(len(rows), 'transaction')} of {of_group(*self.triage.group_of(names[0]))}"
        ages = sorted(now_ms - row.half_store_time_ms for row in rows if row.half_store_time_ms is not None)
        if ages:
            yield f"ages    {duration_text(ages[0])} to {duration_text(ages[-1])}"
        checks = sorted(row.checks_count for row in rows if row.checks_count is not None)
        if checks:
            yield f"checks  {checks[0]} to {checks[-1]}"
        first = min((row for row in rows if row.discard_at_ms), key=lambda row: row.discard_at_ms or 0, default=rows[0])
        if (deadline := deadline_of(first.row(), self.predicted)) is not None:
            yield f"discard {'first ' if deadline.discard_at_ms else ''}{deadline_text(deadline, now_ms)}"
        causes = Counter(word for row in rows for word in row.causes or ())
        if causes:
            yield f"causes  {', '.join(f'{word} {number}' for word, number in causes.most_common())}"
        yield f"ids     {few(names, 3, ' ')}"
        yield from self._ledger_lines(names)

    # -- both ---------------------------------------------------------------------------------------------------------

    def _ledger_lines(self, names: Sequence[str]) -> Iterator[str]:
        found = [self.ledger[name] for name in names if name in self.ledger]
        if len(found) == 1:
            yield f"ledger  {found[0].action or 'no answer'}: {found[0].why}"
        elif found:
            words = Counter(str(one.action or "no answer") for one in found)
            yield f"ledger  {', '.join(f'{number} {word}' for word, number in words.most_common())}"

    def _answer(self, names: Sequence[str], word: str) -> _Next:
        """Take an answer; print what the guards refuse, in their words."""
        against = [name for name in names if self._is_against_ledger(name, word)]
        if against:
            why = self.ledger[against[0]]
            what = f"{word} contradicts the ledger in {len(against)} of {count(len(names), 'transaction')}"
            if not answered(f"rmqtx: {what} ({why.action}: {why.why}): {word} anyway? [y/N] ", NO_TERMINAL):
                return _Next.AGAIN
        draft: PlanDraft = self.triage.answer(names, word)
        say_refused(draft, self.voice)
        taken = len(names) - len(draft.refused)
        if taken:
            say.line(f"rmqtx: {word}: {count(taken, 'transaction')}" + (f", {names[0]}" if len(names) == 1 else ""))
        return _Next.MOVE_ON if taken else _Next.AGAIN

    def _is_against_ledger(self, name: str, word: str) -> bool:
        found = self.ledger.get(name)
        is_decision = word in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD)
        if found is None or found.action is None or not is_decision:
            return False
        return (word == ActKind.COMMIT) != (found.action == ActKind.COMMIT)

    def _undo(self) -> _Next:
        names = self.triage.take_back()
        if not names:
            say.line("rmqtx: no answer of this run is left to take back")
            return _Next.AGAIN
        say.line(f"rmqtx: taken back: {count(len(names), 'transaction')}")
        return _Next.MOVE_ON

    def _print(self, lines: Sequence[str] | Iterator[str], label_cells: int = _LABEL_CELLS) -> None:
        with open_stream(None) as stream:
            write_lines(stream, map(escaped, lines), label_cells)


def _typed(keys: tuple[str, str]) -> str | None:
    """Print the keys; return the line that is typed."""
    say.line(keys[0])
    return typed(keys[1])


def _word(line: str | None) -> str:
    """The word of what was typed; the end of the input quits. Anything else is the empty word."""
    if line is None:
        say.prompt("\n")
        return _QUIT
    text = " ".join(line.casefold().split())
    return _KEYS.get(text) or (text if text in _KEYS.values() else "")


def _body_lines(situation: Situation) -> Iterator[str]:
    """The body of the message, decompressed; as text, with bytes that are not UTF-8 as backslash escapes."""
    record = situation.half_copy or situation.discard_copy
    if record is None or not record.raw:
        yield "the body cannot be read: no copy of the record is readable"
        return
    try:
        message = message_of(record.raw)
    except FormatError as error:
        yield f"the body cannot be read: {error}"
        return
    body = base64.b64decode(message["body_base64"])
    stored = "" if message["body_is_readable"] else ", compressed, and it cannot be decompressed"
    yield f"body, {size(len(body))}{stored}:"
    text = body.decode("utf-8", "backslashreplace")
    yield from text[:_BODY_CHARACTERS_MAX].splitlines()
    if len(text) > _BODY_CHARACTERS_MAX:
        yield f"... {count(len(text) - _BODY_CHARACTERS_MAX, 'more character')}"
