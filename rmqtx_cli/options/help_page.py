"""The help page of a command: usage, what it does, examples, arguments, and its options by group."""

from __future__ import annotations

import re
from typing import Any

#: Options by purpose, in the order of the page; an option that no group lists is in the section "Options".
#: The names are those of the parameters, as commands declare them.
GROUPS: dict[str, tuple[str, ...]] = {
    "Select": (
        "where", "group", "topic", "older_than", "deadline_within", "all_open", "flagged", "every", "at", "and_at",
        "begin", "end", "queue", "key", "identity", "properties", "body_contains", "body_regex", "transaction",
        "finding", "action", "outcome", "since", "limit",
    ),
    "Output": (
        "fields", "sort", "output_format", "output", "summary", "findings", "coverage", "listed", "show", "body",
        "decompress", "check_crc", "wide", "csv_safe", "timestamps", "hash_all", "with_meta", "fail_on", "exit_code",
        "textfile", "no_pager",
    ),
    "Stores": (
        "store", "scan", "no_scan", "in_place", "undo", "commit_log", "broker_conf", "broker_version",
        "transaction_table", "table", "offset_column", "group_column",
    ),
    "Live brokers": (
        "namesrv", "broker", "cluster", "namespace", "credentials", "tls", "tls_ca", "tls_cert", "tls_key",
        "tls_server_name", "tls_insecure", "rate", "timeout",
    ),
    "Engine": ("engine", "master", "remote", "conf", "split_bytes", "processes", "temporary"),
    "General": ("verbose", "quiet", "help"),
}  # fmt: skip
_REST = "Options"
#: Options that have another purpose in a command: they are in the section "Options" there.
_NOT_GROUPED = {
    ("check", "timeout"), ("answer", "group"), ("probe", "group"), ("probe", "topic"), ("bundle", "output"),
    ("plan", "output"), *((acting, "group") for acting in ("commit", "rollback", "discard", "resume", "close")),
}  # fmt: skip
_COLUMN_MAX = 26


def write_help(command: Any, context: Any, formatter: Any) -> None:
    """Write the help page of a command."""
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    if command.epilog:
        formatter.write_paragraph()
        formatter.write(command.epilog.removeprefix("\b\n") + "\n")
    for title, rows in sections(command, context).items():
        with formatter.section(title):
            formatter.write_dl(rows, _COLUMN_MAX)


def sections(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Arguments and options of a command, each with its help, by the title of their section, in the page's order."""
    found: dict[str, list[Any]] = {title: [] for title in ("Arguments", _REST, *GROUPS)}
    for parameter in command.get_params(context):
        is_argument = parameter.param_type_name == "argument"
        found["Arguments" if is_argument else _group_of(command, parameter)].append(parameter)
    for parameters in found.values():
        parameters.sort(key=_place)
    pages = {title: [help_record(one, context) for one in some] for title, some in found.items()}
    return {title: [row for row in rows if row is not None] for title, rows in pages.items() if any(rows)}


def help_record(parameter: Any, context: Any) -> tuple[str, str] | None:
    """Name and help of a parameter as they are printed; None for a hidden one."""
    record = parameter.get_help_record(context)
    if record is None:
        return None
    text = re.sub(r"\s*\[(x>=[\d.]+|\d+<=x<=\d+)\]", "", record[1])
    text = re.sub(r"; x>=[\d.]+|; \d+<=x<=\d+", "", text)
    if parameter.param_type_name == "argument":
        return argument(parameter), re.sub(r"\s*\[required\]", "", text)
    return record[0], text.removesuffix(".")


def argument(parameter: Any) -> str:
    """How an argument is written in a usage line: STORE, [STORE], STORE... or [STORE...]."""
    name = f"{parameter.metavar}..." if parameter.nargs != 1 else str(parameter.metavar)
    return name if parameter.required else f"[{name}]"


def _place(parameter: Any) -> int:
    """Place of an option in its group; the same for parameters without a group, which keep their order."""
    return next((names.index(parameter.name) for names in GROUPS.values() if parameter.name in names), 0)


def _group_of(command: Any, parameter: Any) -> str:
    if (command.name, parameter.name) in _NOT_GROUPED:
        return _REST
    return next((title for title, names in GROUPS.items() if parameter.name in names), _REST)
