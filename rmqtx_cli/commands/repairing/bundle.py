"""`rmqtx bundle`: the smallest part of a store that shows some transactions or findings."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.repairs.bundles.bundle import BUNDLED, Bundle, BundleSource, make_bundle, refuse_target
from rmqtx.repairs.bundles.redaction import redaction_key
from rmqtx_cli.commands.declared.data import BundleCommand
from rmqtx_cli.options.options import OutputOptions, StoreOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.sources.opening import open_stores, refuse_inside
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size


def run(options: BundleCommand) -> int:
    """Run the command; return its exit status."""
    if not options.transaction and not options.finding:
        raise BadRequest("no transaction or finding given", advice="add --transaction ID or --finding CODE")
    if (options.output is None) == (options.to is None):
        raise BadRequest("exactly one place for the bundle is required", advice="give -o FILE.tar.xz or --to DIR")
    if options.redact_key_file is not None and not options.redact:
        raise BadRequest("--redact-key-file needs --redact")
    listing = Listing(
        BUNDLED, view(), OutputOptions(output_format=options.output_format, form=options.form), voice=options.voice
    )
    target = options.output if options.output is not None else options.to
    assert target is not None
    source = _source(options.store, options.files, (target, options.redact_key_file))
    refuse_target(target, is_archive=options.output is not None)
    key = redaction_key(options.redact_key_file) if options.redact else None
    made = make_bundle(
        source, options.transaction or (), options.finding or (), target, is_archive=options.output is not None,
        key=key, scan=not options.no_scan
    )
    listing.write(iter(made.transactions.to_batches()))
    return _say_made(made, options.voice)


def _source(path: str, files: StoreOptions, written: tuple[Path | None, ...]) -> BundleSource:
    """Return the store to read. `written`: files that must not be inside it. Raises: BadRequest."""
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
    return View(
        (
            plain("transaction_id", ALWAYS), plain("bundle_transaction_id", ALWAYS, "in the bundle"), plain("state"),
            plain("was_asked", 2), plain("records_count", 2, "records"),
        ),
        "no transactions, only findings",
    )
