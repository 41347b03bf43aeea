"""The options of commands that act: on which transactions, how, and on which store or brokers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.options import completion
from rmqtx_cli.options.options import BrokerConfOption, CommitLogOption
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text

IdArguments = Annotated[
    list[str],
    typer.Argument(
        parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
        help="Transaction id, message id of any of its records, or a business key of exactly one transaction.",
    ),
]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Refuse transactions of other producer groups.")
]
CopyOption = Annotated[
    int | None,
    typer.Option(
        "--copy", metavar="QUEUE_OFFSET", help="Decide this half copy instead of the newest (guard younger-copy)."
    ),
]
ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason for the receipt.")]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--override", metavar="GUARD", autocompletion=completion.guards,
        help="Override this guard; needs --reason; repeatable.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and stop.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; for scripts.")]
HoldOverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--override", metavar="GUARD", autocompletion=completion.hold_guards,
        help="Override this guard; needs --reason; repeatable.",
    ),
]


@dataclass(frozen=True, slots=True)
class ActOptions:
    """The options of all acting commands."""

    dry_run: DryRunOption = False
    yes: YesOption = False
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the effect is proved, at most 30s.")
    ] = True
    wait_for: Annotated[
        str | None,
        typer.Option(
            "--wait-for", metavar="DURATION", help="Watch for this time, even if the effect is proved earlier."
        ),
    ] = None
    settle: Annotated[
        str | None,
        typer.Option(
            "--settle", metavar="DURATION",
            help="Time to wait first for decisions under way; default: from the broker's settings.",
        ),
    ] = None
    max_per_second: Annotated[
        float | None, typer.Option("--max-per-second", metavar="N", help="Act on at most N transactions per second.")
    ] = None

    @property
    def live_only(self) -> dict[str, object]:
        """Values of the options that are for live brokers only, by option name."""
        return {"--settle": self.settle, "--wait-for": self.wait_for, "--max-per-second": self.max_per_second}


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """The options for a stopped broker's files. Order of the fields: that of the help text."""

    store: Annotated[
        str | None,
        typer.Option("--store", metavar="STORE", help="Root of a stopped broker's store: act on its files."),
    ] = None
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="With --store: write the changed store to this new directory."),
    ] = None
    in_place: Annotated[
        bool, typer.Option("--in-place", help="With --store: change the store itself; needs --undo.")
    ] = False
    undo: Annotated[
        Path | None,
        typer.Option("--undo", metavar="FILE", help="With --in-place: write the undo file here first (rmqtx undo)."),
    ] = None
    commit_log: CommitLogOption = None
    broker_conf: BrokerConfOption = None
    #: Without the note of readers that another release is assumed: an act is refused.
    broker_version: Annotated[
        str | None,
        typer.Option(
            "--broker-version", metavar="X.Y.Z", help="The broker's version; default: detected from the store's files"
        ),
    ] = None

    @property
    def warning(self) -> str:
        """What is changed, for the confirmation prompt."""
        if self.in_place:
            return f"the store itself is changed (rmqtx undo {quoted(str(self.undo))} reverts it)"
        return f"the store stays unchanged, {self.to} becomes the changed copy"

    def say_where(self, voice: Voice) -> None:
        """Print where the changed store is."""
        if self.to is not None:
            voice.note(f"{self.to} is the changed store; {self.store} is unchanged")
        else:
            undo = f"rmqtx undo {quoted(str(self.undo))}"
            voice.note(f"{self.store} was changed; until a broker opens it, {undo} reverts the change")
