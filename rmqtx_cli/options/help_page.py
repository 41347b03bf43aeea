"""The help page of a command: usage, what it does, examples, arguments, and its options by group."""

from __future__ import annotations

import re
from typing import Any

from rmqtx.repairs.receipts.act_words import PLANNED, ActKind

#: Options by purpose, in the order of the page; an option that no group lists is in the section "Options".
#: The names are those of the parameters, as commands declare them.
GROUPS: dict[str, tuple[str, ...]] = {
    "Select": (
        "where", "group", "topic", "older_than", "from_trace", "deadline_within", "all_open", "flagged", "every", "at",
        "and_at",
        "begin", "end", "queue", "key", "identity", "properties", "body_contains", "body_regex", "transaction",
        "finding", "action", "outcome", "since", "sample", "seed", "limit",
    ),
    "Output": (
        "fields", "sort", "output_format", "output", "partition_by", "summary", "findings", "coverage", "listed",
        "show", "body", "body_decoder", "decompress", "check_crc", "wide", "csv_safe", "timestamps", "hash_all",
        "with_meta", "proof", "fail_on", "exit_code", "textfile", "no_pager",
    ),
    "Stores": (
        "store", "scan", "no_scan", "in_place", "undo", "commit_log", "broker_conf", "broker_version", "proxy_conf",
        "transaction_table", "table", "offset_column", "group_column", "broker_logs", "log_zone", "trace_topic",
    ),
    "Live brokers": (
        "namesrv", "broker", "cluster", "namespace", "credentials", "tls", "tls_ca", "tls_cert", "tls_key",
        "tls_server_name", "tls_insecure", "rate", "timeout",
    ),
    "Engine": ("engine", "master", "remote", "conf", "split_bytes", "processes", "temporary"),
    "General": ("verbose", "quiet", "log_json", "help"),
}
_REST = "Options"
#: Sections of options that have another purpose in a command, by command and option.
_ELSEWHERE: dict[tuple[str, str], str] = {
    ("check", "timeout"): _REST, ("answer", "group"): _REST, ("probe", "group"): _REST, ("probe", "topic"): _REST,
    ("bundle", "output"): _REST, ("plan", "output"): _REST, ("triage", "output"): _REST,
    **{(name, "group"): _REST for name in PLANNED},
    **{(name, "to"): "Stores" for name in (*PLANNED, "apply", "set") if name != ActKind.REDELIVER},
}
#: Place of an option that is only in a group by `_ELSEWHERE`.
_AFTER_STORE = 1
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
    """Return names and helps of a command's arguments and options by section, in the order of the page."""
    found: dict[str, list[Any]] = {title: [] for title in ("Arguments", _REST, *GROUPS)}
    for parameter in command.get_params(context):
        is_argument = parameter.param_type_name == "argument"
        found["Arguments" if is_argument else _group_of(command, parameter)].append(parameter)
    for title in GROUPS:
        found[title].sort(key=_place)
    pages = {title: [help_record(one, context) for one in some] for title, some in found.items()}
    return {title: [row for row in rows if row is not None] for title, rows in pages.items() if any(rows)}


def help_record(parameter: Any, context: Any) -> tuple[str, str] | None:
    """Return name and help of a parameter as printed; None for a hidden parameter."""
    record = parameter.get_help_record(context)
    if record is None:
        return None
    text = re.sub(r"\s*\[(x>=[\d.]+|\d+<=x<=\d+)\]", "", record[1])
    text = re.sub(r"; x>=[\d.]+|; \d+<=x<=\d+", "", text).replace(".  [", "  [").removesuffix(".")
    if parameter.param_type_name == "argument":
        return argument(parameter), re.sub(r"\s*\[required\]", "", text)
    return record[0], text


def argument(parameter: Any) -> str:
    """Return an argument as usage lines print it: STORE, [STORE], STORE... or [STORE...]."""
    name = f"{parameter.metavar}..." if parameter.nargs != 1 else str(parameter.metavar)
    return name if parameter.required else f"[{name}]"


def _place(parameter: Any) -> int:
    """Return the place of an option in its group."""
    places = (names.index(parameter.name) for names in GROUPS.values() if parameter.name in names)
    return next(places, _AFTER_STORE)


def _group_of(command: Any, parameter: Any) -> str:
    title = next((title for title, names in GROUPS.items() if parameter.name in names), _REST)
    return _ELSEWHERE.get((command.name, parameter.name), title)
