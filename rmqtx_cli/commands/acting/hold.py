"""`rmqtx hold`: raise the limits by which brokers discard open transactions, for a time."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import DryRunOption, YesOption
from rmqtx_cli.acting.holding import carry_out_changes, print_change, settings_listing
from rmqtx_cli.acting.holding_files import print_lines
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions, open_live
from rmqtx_cli.options.options import ReceiptOptions, StoreOptions, VoiceOptions
from rmqtx_cli.sources.source import refuse_file_options
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.times import time_text

NAME = ActKind.HOLD
EXAMPLES = (
    Example("rmqtx hold -n 10.0.0.1:9876 --for 4h --reason 'shop is down, OPS-4711' --dry-run", "what would change"),
    Example("rmqtx hold -n 10.0.0.1:9876 --for 4h --reason 'shop is down, OPS-4711'", "hold all brokers"),
    Example("rmqtx hold --broker 10.0.0.2:10911 --for 2h --reason OPS-4711 --yes", "one broker, without a name server"),
    Example("rmqtx hold --store STORE --for 4h", "a stopped broker: print the lines for its configuration file"),
)

ForOption = Annotated[
    str,
    typer.Option(
        "--for", metavar="DURATION", help="How long the hold should last, like 4h; then rmqtx holds shows it as overdue"
    ),
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait for a round of the check, and name what was discarded before it")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Reason for the receipt; required for live brokers.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="STORE",
        help="A stopped broker's store: print the lines for its configuration file, and write nothing.",
    ),
]


@with_option_groups
def command(
    duration: ForOption,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    wait: WaitOption = True,
    store: StoreOption = None,
    *,
    files: StoreOptions,
    output: ReceiptOptions,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Hold brokers: they discard no open transaction while its producers are repaired.

    Raises transactionCheckMax, and fileReservedTime where half messages would be discarded unasked because of their
    age, from the next round of the check on. The checks go on. Each setting is read back, and a round of the check is
    awaited: a half message that was discarded before is named (exit status 18). rmqtx release puts back the values of
    before: the end of --for changes nothing by itself. A second hold extends the first. With --store the lines for the
    configuration file of a stopped broker are printed, and nothing is written.
    """
    from rmqtx.repairs.holds.changes import CheckedChange, checked_hold
    from rmqtx.repairs.holds.standing_holds import standing_holds
    from rmqtx.repairs.receipts.journal import Journal

    duration_ms = parse_duration_ms(duration)
    if duration_ms <= 0:
        raise BadRequest("--for must be more than 0", advice="for example --for 4h")
    if store is not None:
        live.instead_of([store], "leave one out")
        unfit = {
            "--yes": yes, "--no-wait": not wait, "--output": output.output, "--fields": output.fields,
            "--format": output.output_format,
        }
        return print_lines(store, files, unfit, duration_ms, voice)
    refuse_file_options(files)
    if not (reason or "").strip():
        raise BadRequest("--reason is missing", advice="give the ticket or the incident")
    journal, listing = Journal(), settings_listing(output, voice)
    holds = standing_holds(journal.read().receipts)
    with open_live(live, without_lost=True) as found:
        now_ms = time.time_ns() // 1_000_000
        until_ms = now_ms + duration_ms
        changes = [checked_hold(broker, holds.get(broker.root), now_ms, until_ms) for broker in found.brokers]
        changes += [CheckedChange(one.root, None, ActKind.HOLD, error=one.error) for one in found.lost]
        for one in changes:
            print_change(one, now_ms, voice)
        if any(one.is_allowed for one in changes):
            voice.note(f"until {time_text(until_ms)}: then rmqtx release puts back what was there")
        return carry_out_changes(
            changes, journal, reason, (), "change the settings", listing, dry_run=dry_run, yes=yes, wait=wait,
        )
