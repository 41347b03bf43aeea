"""`rmqtx cursor set`: set the cursors of the transaction check in a stopped broker's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx.verdicts.model.state import State
from rmqtx_cli.acting.acting import DryRunOption, YesOption
from rmqtx_cli.commands import Example, epilog
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.command_tree import CommandTree
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import ReceiptOptions, VoiceOptions
from rmqtx_cli.sources.offline import OfflineOptions
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.command_names import LINES
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store
    from rmqtx.repairs.changes.change_sets import ChangeSet
    from rmqtx.repairs.changes.execution import Destination
    from rmqtx.repairs.cursors.cursors import Effects, Move
    from rmqtx_cli.output.views import View

NAME = "cursor"
EXAMPLES = (
    Example(
        "rmqtx cursor set --half 4711 --store STORE --to COPY --dry-run",
        "list the transactions that this would affect",
    ),
    Example("rmqtx cursor set --half 4712 --store STORE --to COPY", "skip a half message that stops the check"),
    Example(
        "rmqtx cursor set --half 4000 --op 900 --store STORE --in-place --undo cursors.undo",
        "check passed transactions again, with the op messages of decided ones",
    ),
)

app = CommandTree(help="Set the cursors of the transaction check in a stopped broker's files.")

HalfOption = Annotated[
    int | None, typer.Option("--half", min=0, metavar="N", help="Half queue offset that the check reads next")
]
OpOption = Annotated[
    int | None, typer.Option("--op", min=0, metavar="M", help="Op queue offset that the check reads next")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Reason, kept in the receipt")
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--override", metavar="EFFECT", help="Accept this effect: abandoned or asked-again; needs --reason; repeatable"
    ),
]


@with_option_groups
def command(
    half: HalfOption = None,
    op: OpOption = None,
    reason: ReasonOption = None,
    override: OverrideOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    output: ReceiptOptions,
    voice: VoiceOptions,
    offline: OfflineOptions,
) -> int:
    """Set the cursors of the transaction check (CID_RMQ_SYS_TRANS) in the files of a stopped broker.

    Changes config/consumerOffset.json and its backup, with enableLmq config/lmqConsumerOffset.json. The rows list the
    transactions that the broker would then treat differently: abandoned ones are undecided and no longer checked,
    asked-again ones are decided and checked again, discarded-unasked ones are too old or checked too often: the broker
    discards a copy without asking. Taken-up ones are undecided or discarded and checked again; never-asked ones are
    read by the check with the present cursors only: a line names the place where the check is then stopped. Abandoned
    and asked-again ones are refused, unless overridden; without --broker-conf also decided ones that are discarded
    unasked, because a broker with a longer fileReservedTime checks them. If you set the half cursor back, set the op
    cursor back too, to before the op messages of the decided transactions. `rmqtx simulate` predicts the next rounds.
    """
    from rmqtx.readers.store.broker_conf import read_broker_conf
    from rmqtx.repairs.cursors.cursors import CURSOR_EFFECTS, change_set, effects, moves
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.pages.check_alive import check_sentence

    _check(override, reason)
    listing = Listing(CURSOR_EFFECTS, view(), output.rows, voice=voice)
    conf = {} if offline.broker_conf is None else read_broker_conf(offline.broker_conf)
    with offline.locked(voice) as (store, settings_of, destination, opened):
        wanted = moves(store, settings_of(store), conf, half=half, op=op)
        changes = change_set(store, wanted)
        for move in wanted:
            voice.note(_way(move))
        found = effects(store, wanted, changes, settings_of, opened)
        rows = found.rows
        listing.write(_batches(rows))
        for stop in found.stops:
            voice.note(f"with the new cursors {check_sentence(stop)}")
        if found.lacks:
            voice.note(
                f"evidence is missing or damaged ({', '.join(found.lacks)}): more transactions may be affected - "
                f"rmqtx verify {quoted(store.root)}"
            )
        if _is_refused(found, override or (), has_conf=offline.broker_conf is not None):
            return exit_status.REFUSED_BY_GUARD
        status = exit_status.INCOMPLETE if found.lacks else exit_status.DONE
        if dry_run:
            voice.note("nothing was done: --dry-run")
            return status
        if not yes and not agreed(f"{offline.warning}: set the cursors"):
            say.line("rmqtx: nothing was done")
            return exit_status.REFUSED_BY_GUARD
        receipt_id, journal = _carried_out(wanted, changes, store, destination, opened, reason, override or ())
        offline.say_where(voice)
        voice.note(f"receipt {receipt_id} is in {journal}")
    return status


def _carried_out(
    wanted: Sequence[Move], changes: ChangeSet, store: Store, destination: Destination, opened: Callable[..., Store],
    reason: str | None, overrides: Sequence[str],
) -> tuple[str, Path]:
    """Set the cursors, read them back, write the receipt; return its id and its journal."""
    from rmqtx.readers.cursors.cursors import check_cursors
    from rmqtx.repairs.changes.execution import carried_out
    from rmqtx.repairs.cursors.cursors import receipt_of_moves
    from rmqtx.repairs.receipts.journal import Journal

    journal = Journal()
    with receipt_of_moves(journal, store, wanted, destination, reason=reason, overrides=overrides) as made:
        about = [f"{_way(move)} (receipt {made.receipt_id})" for move in wanted]
        about += [f"reason: {reason}"] if reason else []
        root, directories = carried_out(changes, store, destination, about, [made.receipt_id])
        made.store = root
        _prove(wanted, check_cursors(opened(root, directories)))
    return made.receipt_id, journal.path


app.command("set", short_help=LINES[NAME], epilog=epilog(EXAMPLES))(command)


def _check(override: Sequence[str] | None, reason: str | None) -> None:
    from rmqtx.repairs.cursors.cursors import UNWANTED
    from rmqtx_cli.words.near import did_you_mean

    for name in override or ():
        if name not in UNWANTED:
            raise BadRequest(f"no effect {name!r}", advice=did_you_mean(name, list(UNWANTED)))
    if override and not (reason or "").strip():
        raise BadRequest("--override needs --reason TEXT")


def _way(move: Move) -> str:
    before = "the begin of the queue" if move.before is None else str(move.before)
    return f"cursor of {move.topic}: from {before} to {move.after}"


def _is_refused(effects: Effects, override: Sequence[str], *, has_conf: bool) -> bool:
    """Print the unwanted effects that are not overridden; return whether there are any.

    `has_conf`: the settings that decide whether the check asks a producer are known, not the defaults.
    """
    from rmqtx.repairs.cursors.cursors import KINDS, UNWANTED

    rows = effects.rows
    counts = Counter(row["kind"] for row in rows)
    found = [kind for kind in UNWANTED if counts[kind] and kind not in override]
    for kind in found:
        say.error(
            f"refused by {kind}: {count(counts[kind], 'transaction')}: {KINDS[kind]} - choose other cursors, or add "
            f"--override {kind} --reason TEXT"
        )
    is_unread = effects.unread_count > 0 and "abandoned" not in override
    if is_unread:
        say.error(
            f"refused by abandoned: {count(effects.unread_count, 'half slot')} that the cursor passes: no file of the "
            "log has the record, and whether its transaction is decided is unknown - find the missing files in a "
            "backup or on a slave, or add --override abandoned --reason TEXT"
        )
    unasked_count = sum(
        row["kind"] == "discarded-unasked" and row["state_before"] in (State.COMMITTED, State.ROLLED_BACK)
        for row in rows
    )
    is_unsure = unasked_count > 0 and not has_conf and "asked-again" not in override
    if is_unsure:
        say.error(
            f"refused by asked-again: {count(unasked_count, 'transaction')}: decided; by default settings the check "
            "discards them without asking, with a longer fileReservedTime or more checks it asks again: a second "
            "delivery is possible - add --broker-conf FILE, or --override asked-again --reason TEXT"
        )
    return bool(found) or is_unread or is_unsure


def _prove(wanted: Sequence[Move], found: Any) -> None:
    """Compare the cursors in the files with those that were set.

    Raises: AssertionError if they differ, which would be a bug.
    """
    from rmqtx.readers.store.store import HALF_TOPIC

    for move in wanted:
        cursors = found.half if move.topic == HALF_TOPIC else found.op
        assert cursors is not None
        assert cursors.get(0) == move.after, _way(move)


def _batches(rows: Sequence[dict[str, Any]]) -> Any:
    import pyarrow as pa

    from rmqtx.repairs.cursors.cursors import CURSOR_EFFECTS

    return iter([pa.RecordBatch.from_pylist(list(rows), schema=CURSOR_EFFECTS)] if rows else [])


def view() -> View:
    """Return the view of affected transactions."""
    from rmqtx_cli.output.views import ALWAYS, View, plain

    return View(
        (
            plain("kind", ALWAYS), plain("transaction_id", ALWAYS), plain("topic", 4),
            plain("keys", 4, may_be_cut=True), plain("state_before", ALWAYS, "before"),
            plain("state_after", ALWAYS, "after"), plain("reason_after", 2, "why", may_be_cut=True),
        ),
        "no transaction is affected",
    )  # fmt: skip
