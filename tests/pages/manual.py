"""The manual pages, generated from the commands and the declared layouts.

`python -m tests.pages.manual DIRECTORY` writes them. They are committed, so that they can be read without Python;
a test compares them with the commands.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from rmqtx.readers.model.exit_status import CHECK_MEANINGS, MEANINGS
from rmqtx_cli.commands import Command
from rmqtx_cli.commands.by_name import GROUPS, declared, in_group
from rmqtx_cli.main import app
from rmqtx_cli.options.configuration import KEYS as CONFIGURATION_KEYS
from rmqtx_cli.options.help_page import argument, sections
from rmqtx_cli.words.command_names import LINES, SECTIONS
from tests.pages.manual_store import store_page
from tests.pages.monitoring_pages import monitoring_page
from tests.pages.roff import bold, heading, item, page, paragraph, subheading, verbatim

NAME = "rmqtx"
_ENVIRONMENT = {
    "RMQTX_DEBUG": "if set, print the traceback of a bug instead of one line",
    "RMQTX_LEDGER_USER": "user of the ledger's database, for rmqtx reconcile and --transaction-table",
    "RMQTX_LEDGER_PASSWORD": "its password; neither is accepted as an argument",
    "NAMESRV_ADDR": "name servers to use if no store, no --namesrv and no broker address is given",
    "RMQTX_ACCESS_KEY": "access key for live brokers with access control; not accepted as an argument",
    "RMQTX_SECRET_KEY": "its secret key; --credentials FILE replaces both",
    "RMQTX_SECURITY_TOKEN": "its security token, for temporary keys",
    "RMQTX_TLS_KEY_PASSWORD": "password of the key in --tls-key, if it is encrypted",
    "RMQTX_STORE": "store to read if none is given; a path, a URI or a name from the configuration file",
    "RMQTX_CONFIG": "the configuration file; default: rmqtx/config.toml in XDG_CONFIG_HOME, by default ~/.config",
    "RMQTX_STATE_DIR": "directory of the receipts, and of the state that check and verify keep between runs",
    "XDG_STATE_HOME": "without RMQTX_STATE_DIR, that directory is rmqtx/ in here; default: ~/.local/state",
    "COLUMNS": "width of tables and help pages, if not the width of the terminal",
}
_CONFIGURATION = (
    "A TOML file: $RMQTX_CONFIG, else $XDG_CONFIG_HOME/rmqtx/config.toml, by default ~/.config/rmqtx/config.toml; "
    "--verbose prints which one was read. Options take precedence over the environment, and the environment over the "
    "file. Secrets are not allowed in it. Its keys:"
)
_SAFETY = (
    "Commands that read write nothing into a store and lock no file in it, and its broker can be running: file lengths "
    "are taken once, and the first line on stderr states how consistent the reading was. Commands that change a store "
    "write a changed copy (--to), or change the store in place (--in-place) after the undo information is on disk "
    "(--undo), and require its broker to be stopped. Text from a store is escaped before it reaches a terminal."
)


def pages() -> dict[str, str]:
    """Return the roff of every manual page by file name."""
    root = typer.main.get_command(app)
    found = {f"{NAME}.1": _root_page(root), f"{NAME}-store.5": store_page(),
             f"{NAME}-monitoring.7": monitoring_page()}
    for name in LINES:
        if name not in GROUPS:
            found[f"{NAME}-{name}.1"] = _command_page(_sub(root, name), declared(name), (name,))
    for name, verb in (("cursor", "set"), ("case", "timeline")):
        only = _sub(_sub(root, name), verb)  # a group of one command: its page has the name of the group
        found[f"{NAME}-{name}.1"] = _command_page(only, in_group(name)[0], (name, verb), f"{NAME}-{name}")
    group = _sub(root, "decode")
    found[f"{NAME}-decode.1"] = _group_page(group, "decode", "KIND")
    for one in in_group("decode"):
        words = ("decode", one.NAME)
        found[f"{NAME}-{'-'.join(words)}.1"] = _command_page(_sub(group, one.NAME), one, words)
    return found


def _sub(group: Any, name: str) -> Any:
    return group.commands[name]


def _root_page(root: Any) -> str:
    def lines() -> Iterator[str]:
        yield from heading("NAME")
        yield from paragraph(f"{NAME} - find, explain and settle transactional messages of Apache RocketMQ")
        yield from heading("SYNOPSIS")
        yield from paragraph(bold(f"{NAME} COMMAND") + " [OPTION]... STORE...", is_roff=True)
        yield from heading("DESCRIPTION")
        for text in _description(root):
            yield from paragraph(text)
        yield from paragraph(_SAFETY)
        yield from heading("COMMANDS")
        for title, names in SECTIONS.items():
            yield from subheading(title)
            for name in names:
                yield from item(f"{NAME}-{name}(1)", root.commands[name].short_help or "")
        yield from heading("OPTIONS")
        yield from _options(root, (), wanted="option")
        yield from heading("EXIT STATUS")
        for number, meaning in MEANINGS.items():
            yield from item(str(number), f"{meaning}.")
        yield from paragraph("rmqtx check and rmqtx probe use the statuses of Nagios plug-ins only:")
        for number, meaning in CHECK_MEANINGS.items():
            yield from item(str(number), f"{meaning}.")
        yield from heading("ENVIRONMENT")
        for name, meaning in _ENVIRONMENT.items():
            yield from item(name, f"{meaning}.")
        yield from heading("CONFIGURATION FILE")
        yield from paragraph(_CONFIGURATION)
        for name, meaning in CONFIGURATION_KEYS.items():
            yield from item(name, f"{meaning}.")
        yield from heading("SEE ALSO")
        pages = [*(f"{NAME}-{name}(1)" for name in root.commands), f"{NAME}-store(5)", f"{NAME}-monitoring(7)"]
        yield from paragraph(", ".join(pages))

    return page(NAME, 1, lines())


def _group_page(group: Any, name_of_group: str, kind: str) -> str:
    title = f"{NAME}-{name_of_group}"
    operands = " STORE..." if kind == "KIND" else ""

    def lines() -> Iterator[str]:
        yield from heading("NAME")
        yield from paragraph(f"{title} - {group.short_help}")
        yield from heading("SYNOPSIS")
        yield from paragraph(bold(f"{NAME} {name_of_group} {kind}") + " [OPTION]..." + operands, is_roff=True)
        yield from heading("DESCRIPTION")
        yield from paragraph(group.help)
        yield from heading(f"{kind}S")
        for name, command in group.commands.items():
            yield from item(f"{title}-{name}(1)", command.short_help or "")
        yield from heading("SEE ALSO")
        yield from paragraph(f"{NAME}(1), {NAME}-store(5)")

    return page(title, 1, lines())


def _command_page(command: Any, declaration: type[Command], words: tuple[str, ...], title: str | None = None) -> str:
    title = title or "-".join((NAME, *words))

    def lines() -> Iterator[str]:
        yield from heading("NAME")
        yield from paragraph(f"{title} - {command.short_help}")
        yield from heading("SYNOPSIS")
        arguments = " ".join(argument(p) for p in command.params if p.param_type_name == "argument")
        yield from paragraph(f"{bold(' '.join((NAME, *words)))} [OPTION]... {arguments}", is_roff=True)
        yield from heading("DESCRIPTION")
        for text in _description(command):
            yield from paragraph(text)
        yield from heading("ARGUMENTS")
        yield from _options(command, words, wanted="argument")
        yield from heading("OPTIONS")
        yield from _options(command, words, wanted="option")
        yield from heading("EXIT STATUS")
        for number, meaning in (CHECK_MEANINGS if words[0] in ("check", "probe") else MEANINGS).items():
            yield from item(str(number), f"{meaning}.")
        yield from heading("EXAMPLES")
        for example in declaration.EXAMPLES:
            yield from paragraph(f"{example.says}:")
            yield from verbatim(example.line)
        yield from heading("SEE ALSO")
        yield from paragraph(f"{NAME}(1), {NAME}-store(5), {NAME}-explain(1)")

    return page(title, 1, lines())


def _description(command: Any) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def _options(command: Any, words: tuple[str, ...], *, wanted: str) -> Iterator[str]:
    """The arguments of a command, or its options by section."""
    context = command.make_context(" ".join((NAME, *words)), [], resilient_parsing=True)
    for title, rows in sections(command, context).items():
        if (title == "Arguments") != (wanted == "argument"):
            continue
        if wanted == "option" and words:
            yield from subheading(title)
        for names, text in rows:
            yield from item(names, " ".join(text.split()))


def write(directory: Path) -> None:
    """Write every page, and remove pages of commands that no longer exist."""
    directory.mkdir(parents=True, exist_ok=True)
    current = pages()
    for old in directory.glob(f"{NAME}*.[15]"):
        if old.name not in current:
            old.unlink()
    for name, text in current.items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(textwrap.dedent("usage: python -m tests.pages.manual DIRECTORY"))
    write(Path(sys.argv[1]))
