"""`rmqtx bundle`: the smallest slice of a store that shows some transactions or findings, for a bug report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import FormatOption, OutputOptions, StoreOptions, VoiceOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size, stored_text

if TYPE_CHECKING:
    from repairs.bundles.bundle import Bundle, BundleSource
    from rmqtx_cli.output.views import View

NAME = "bundle"
SHORT = "the smallest slice of a store that shows some transactions, for a bug report"
EXAMPLES = (
    Example("rmqtx bundle STORE --transaction ORDER-4711 -o case.tar.xz", "one transaction, with all its records"),
    Example("rmqtx bundle STORE --transaction ORDER-4711 --redact -o case.tar.xz", "without bodies and names"),
    Example("rmqtx bundle STORE --finding slot-mismatch --to case", "what shows a finding of verify, as a directory"),
    Example(
        "rmqtx bundle STORE --transaction ID --redact --redact-key-file key -o two.tar.xz",
        "with the pseudonyms of an earlier one",
    ),
)

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Root of a broker's store, the directory that holds commitlog/.")
]
TransactionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--transaction", "-t", parser=stored_text, metavar="ID",
        help="A transaction id, the message id of any of its records, or a business key; repeat it for several.",
    ),
]
FindingOption = Annotated[
    list[str] | None,
    typer.Option("--finding", metavar="CODE", help="A finding of rmqtx verify; repeat it for several."),
]
ArchiveOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.tar.xz", help="The archive to write; it must not exist.")
]
DirectoryOption = Annotated[
    Path | None, typer.Option("--to", metavar="DIR", help="Write a directory instead; it must not exist.")
]
RedactOption = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Replace bodies by their length and keyed hash, and names, ids, keys and hosts by stable pseudonyms.",
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--redact-key-file", metavar="FILE",
        help="The key of the pseudonyms, made if FILE does not exist; without it nobody ever knows the key.",
    ),
]
NoScanOption = Annotated[
    bool,
    typer.Option(
        "--no-scan", help="Follow queues and index instead of reading the whole log: quick, and blind to damage in it."
    ),
]


@with_option_groups
def command(
    store: StoreArgument,
    transaction: TransactionOption = None,
    finding: FindingOption = None,
    output: ArchiveOption = None,
    to: DirectoryOption = None,
    redact: RedactOption = False,
    redact_key_file: KeyOption = None,
    no_scan: NoScanOption = False,
    output_format: FormatOption = None,
    *,
    files: StoreOptions,
    voice: VoiceOptions,
) -> int:
    """Cut the smallest slice out of a store that still shows some transactions, or some findings of verify.

    The slice is a store of its own, at the same offsets, that every reading command takes; nothing but the records
    that were chosen is in it. It is read back and compared before it gets its name. Lists what each transaction is
    called in it.
    """
    from repairs.bundles.bundle import BUNDLED, make_bundle, refuse_target
    from repairs.bundles.redaction import redaction_key
    from rmqtx_cli.output.listing import Listing

    if not transaction and not finding:
        raise BadRequest("nothing to bundle", advice="give --transaction ID, or --finding CODE")
    if (output is None) == (to is None):
        raise BadRequest("one place for the bundle", advice="give -o FILE.tar.xz, or --to DIR")
    if redact_key_file is not None and not redact:
        raise BadRequest("--redact-key-file belongs to --redact")
    listing = Listing(BUNDLED, view(), OutputOptions(output_format=output_format), voice=voice)
    target = output if output is not None else to
    assert target is not None
    source = _source(store, files, (target, redact_key_file))
    refuse_target(target, is_archive=output is not None)
    key = redaction_key(redact_key_file) if redact else None
    made = make_bundle(
        source, transaction or (), finding or (), target, is_archive=output is not None, key=key, scan=not no_scan
    )
    listing.write(iter(made.transactions.to_batches()))
    return _say_made(made, voice)


def _source(path: str, files: StoreOptions, written: tuple[Path | None, ...]) -> BundleSource:
    """The store that is cut. `written`: files that must not lie inside it.

    Raises: BadRequest.
    """
    from readers.store.broker_conf import read_broker_conf
    from repairs.bundles.bundle import BundleSource
    from rmqtx_cli.sources.opening import open_stores, refuse_inside

    stores = open_stores([path], files).stores
    if len(stores) != 1:
        raise BadRequest(f"{path} names {len(stores)} stores", advice="bundle one at a time")
    for file in written:
        refuse_inside(file, stores)
    conf = None if files.broker_conf is None else read_broker_conf(files.broker_conf)
    return BundleSource(stores[0], conf, files.broker_version)


def _say_made(made: Bundle, voice: Voice) -> int:
    """What was written, and what reads otherwise in it."""
    findings = f", {count(made.findings_count, 'finding')}" if made.findings_count else ""
    voice.note(
        f"{made.place}: {count(made.records_count, 'record')} of {size(made.records_bytes)}{findings}, "
        f"{size(made.size_bytes)} in all; manifest.json says what is in it"
    )
    if made.options:
        voice.note(f"read its store with {' '.join(made.options)}")
    for line in made.differences:
        voice.note(f"not as in the store: {line}")
    return exit_status.INCOMPLETE if made.differences else exit_status.DONE


def view() -> View:
    """How the transactions of a bundle are listed."""
    from rmqtx_cli.output.views import ALWAYS, View, plain

    return View(
        (
            plain("transaction_id", ALWAYS), plain("bundle_transaction_id", ALWAYS, "in the bundle"), plain("state"),
            plain("was_asked", 2), plain("records_count", 2, "records"),
        ),
        "no transactions, only findings",
    )  # fmt: skip
