"""`rmqtx bundle`: the smallest part of a store that shows some transactions or findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import FormatOption, OutputOptions, RowForm, StoreOptions, VoiceOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size, stored_text

if TYPE_CHECKING:
    from rmqtx.repairs.bundles.bundle import Bundle, BundleSource
    from rmqtx_cli.output.views import View

NAME = "bundle"
EXAMPLES = (
    Example("rmqtx bundle STORE --transaction ORDER-4711 -o case.tar.xz", "one transaction with all its records"),
    Example("rmqtx bundle STORE --transaction ORDER-4711 --redact -o case.tar.xz", "without bodies and names"),
    Example("rmqtx bundle STORE --finding slot-mismatch --to case", "what shows the findings of verify with one code"),
    Example(
        "rmqtx bundle STORE --transaction ID --redact --redact-key-file key -o two.tar.xz",
        "with the pseudonyms of an earlier bundle",
    ),
)

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Root of a broker's store, the directory that contains commitlog/")
]
TransactionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--transaction", "-t", parser=stored_text, metavar="ID",
        help="Transaction id, message id of any of its records, or business key; repeatable",
    ),
]
FindingOption = Annotated[
    list[str] | None,
    typer.Option("--finding", metavar="CODE", help="Code of a finding of rmqtx verify; repeatable"),
]
ArchiveOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.tar.xz", help="Archive to write; it must not exist yet")
]
DirectoryOption = Annotated[
    Path | None, typer.Option("--to", metavar="DIR", help="Write a directory instead; it must not exist yet")
]
RedactOption = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Replace bodies by length and keyed hash; names, ids, keys and hosts by stable pseudonyms",
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--redact-key-file", metavar="FILE",
        help="Key of the pseudonyms, created if FILE does not exist; default: a random key that is not kept",
    ),
]
NoScanOption = Annotated[
    bool,
    typer.Option(
        "--no-scan", help="Read queues and index instead of the whole log: fast, but damage in the log is not seen"
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
    form: RowForm,
    files: StoreOptions,
    voice: VoiceOptions,
) -> int:
    """Write the smallest part of a store that still shows some transactions, or some findings of verify.

    The bundle is a store with the same offsets, and every reading command can read it; it contains only the selected
    records.
    It is read back and compared before it gets its name. The rows list the id of each transaction in the bundle.
    """
    from rmqtx.repairs.bundles.bundle import BUNDLED, make_bundle, refuse_target
    from rmqtx.repairs.bundles.redaction import redaction_key
    from rmqtx_cli.output.listing import Listing

    if not transaction and not finding:
        raise BadRequest("no transaction or finding given", advice="add --transaction ID or --finding CODE")
    if (output is None) == (to is None):
        raise BadRequest("exactly one place for the bundle is required", advice="give -o FILE.tar.xz or --to DIR")
    if redact_key_file is not None and not redact:
        raise BadRequest("--redact-key-file needs --redact")
    listing = Listing(BUNDLED, view(), OutputOptions(output_format=output_format, form=form), voice=voice)
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
    """Return the store to read. `written`: files that must not be inside it.

    Raises: BadRequest.
    """
    from rmqtx.readers.store.broker_conf import read_broker_conf
    from rmqtx.repairs.bundles.bundle import BundleSource
    from rmqtx_cli.sources.opening import open_stores, refuse_inside

    stores = open_stores([path], files).stores
    if len(stores) != 1:
        raise BadRequest(f"{path} matches {len(stores)} stores", advice="give one store")
    for file in written:
        refuse_inside(file, stores)
    conf = None if files.broker_conf is None else read_broker_conf(files.broker_conf)
    return BundleSource(stores[0], conf, files.broker_version)


def _say_made(made: Bundle, voice: Voice) -> int:
    """Print what was written, and differences from the store; return the exit status."""
    findings = f", {count(made.findings_count, 'finding')}" if made.findings_count else ""
    voice.note(
        f"{made.place}: {count(made.records_count, 'record')} of {size(made.records_bytes)}{findings}, "
        f"{size(made.size_bytes)} in all; contents: manifest.json"
    )
    if made.options:
        voice.note(f"to read the bundle, add: {' '.join(made.options)}")
    for line in made.differences:
        voice.note(f"differs from the store: {line}")
    return exit_status.INCOMPLETE if made.differences else exit_status.DONE


def view() -> View:
    """Return the view of a bundle's transactions."""
    from rmqtx_cli.output.views import ALWAYS, View, plain

    return View(
        (
            plain("transaction_id", ALWAYS), plain("bundle_transaction_id", ALWAYS, "in the bundle"), plain("state"),
            plain("was_asked", 2), plain("records_count", 2, "records"),
        ),
        "no transactions, only findings",
    )  # fmt: skip
