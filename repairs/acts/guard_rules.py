"""What each guard looks for: gives one sentence with the witness and what to do instead, or nothing.

Each takes the situation as it is now and what is wished.
"""

from __future__ import annotations

from collections.abc import Sequence

from readers.log.record_layout import COMPRESSED
from readers.model.releases import CHECK_INFLATES, HALF_TOPIC_DESIGN, RESUME_BREAKS_COMPRESSED, RESUME_REQUEST, dotted
from repairs.acts.request import Wish
from repairs.acts.rocksdb_halves import is_in_rocksdb, offset_marks
from repairs.acts.situation import Situation
from verdicts.transactions.reason_codes import REASONS

Found = tuple[str, str] | None

_HOUR_MS = 3_600_000
#: The reason of what nobody decided, where the table that would tell whether it is asked for was not read.
_OPEN_OR_DROPPED = "rocksdb_table_unread"


def slave(situation: Situation, _: Wish) -> Found:
    """The broker is a slave."""
    if not situation.around.is_slave:
        return None
    return "the broker is a slave, and slaves refuse every decision", "name its master by --broker"


def rocksdb(situation: Situation, wish: Wish) -> Found:
    """Its half is in RocksDB, and only the broker's table, which is not shown, tells whether it is asked for."""
    if wish.action != "resume" or not _is_open_or_dropped(situation):
        return None
    return (
        f"nothing decided it, and {REASONS[_OPEN_OR_DROPPED].sentence}: it may still be asked for, and a second half "
        "committed besides",
        f"commit it or roll it back, the broker takes either, open or dropped: rmqtx commit {situation.transaction_id}",
    )


def _is_open_or_dropped(situation: Situation) -> bool:
    """Whether all that is not known of it is whether the broker's table still has its half."""
    return bool(situation.row["reason_code"] == _OPEN_OR_DROPPED)


def prepared_record(situation: Situation, wish: Wish) -> Found:
    """It is of a design before half topics, and the action has no meaning there or the broker does not know how."""
    record = situation.half_copy
    if record is None or not record.is_prepared:
        return None
    what = f"it is a prepared record of a broker before 4.3 (commit-log offset {record.commit_log_offset})"
    identity = situation.transaction_id
    if wish.action == "resume":
        return (
            f"{what}: nothing puts one before a check again",
            f"find out what became of it, then rmqtx commit {identity} or rmqtx rollback {identity}",
        )
    if wish.action == "close":
        return (
            f"{what}: no op message ends it, and one more ROLLBACK record would contradict what was decided",
            "nothing to do: a second decision changes nothing in the broker's table",
        )
    version = situation.around.version
    if situation.around.is_of_files or version is None or not HALF_TOPIC_DESIGN.holds(version):
        return None  # of a plan made from files its broker is asked when it is applied
    return (
        f"{what}, and broker {dotted(version)} cannot decide those: a commit ends in a NumberFormatException "
        f"(no REAL_QID), a rollback would write an op message with number {record.queue_offset}, which hides "
        "another half message",
        f"stop it and act on its files: rmqtx {wish.action} {identity} --store STORE --to DIR",
    )


def wrong_group(situation: Situation, wish: Wish) -> Found:
    """No producer group, or not the one that was named."""
    group = situation.group
    if group is None:
        return "no copy says which producer group it is of, and a decision must name it", "nothing can decide it live"
    if wish.group is not None and wish.group != group:
        return f"it is of producer group {group}, not {wish.group}", "look at it with rmqtx show, then name its group"
    return None


def evidence_incomplete(situation: Situation, _: Wish) -> Found:
    """Something that could turn the verdict round is not known."""
    around = situation.around
    if situation.state == "UNDECIDABLE" and not _is_open_or_dropped(situation):
        return f"what became of it is not known: {situation.row['reason']}", "find what is missing first: rmqtx show"
    if around.unread:
        return f"not everything could be read: {'; '.join(around.unread)}", "make it readable and ask again"
    if around.contradictions:
        more = f" (and {len(around.contradictions) - 1} more)" if len(around.contradictions) > 1 else ""
        return (
            f"what the store says of it cannot all be right: {around.contradictions[0]}{more}",
            f"compare it with a slave, or see all of it: rmqtx verify --full {situation.store}",
        )
    if around.producers is None:
        return (
            f"whether a producer of the group is connected cannot be asked: {around.producers_unknown}",
            "allow the account to list producer connections, or make sure that none runs",
        )
    return None


def already_delivered(situation: Situation, wish: Wish) -> Found:
    """A COMMIT record is there."""
    finals = situation.row["final_records"]
    if not finals or wish.action == "close":
        return None
    final = finals[-1]
    where = f"{final['topic']} queue {final['queue_id']} at queue offset {final['queue_offset']}"
    why = f"it was committed before: COMMIT record in {where} (commit-log offset {final['commit_log_offset']})"
    return why, _close_or_nothing(situation)


def already_decided(situation: Situation, wish: Wish) -> Found:
    """An op message ended it, and no COMMIT record is there."""
    if situation.state in ("PENDING", "UNDECIDABLE") and wish.action == "commit" and is_in_rocksdb(situation.half_copy):
        return _rolled_back_half(situation)
    if situation.state != "ROLLED_BACK" or wish.action == "close":
        return None
    mark = situation.row["op_marks"][-1]
    record = (
        f"ROLLBACK record or op message at commit-log offset {mark['commit_log_offset']} ends it"
        if mark["half_queue_offset"] is None
        else f"op message at queue offset {mark['queue_offset']} ends half copy {mark['half_queue_offset']}"
    )
    why = f"it was rolled back before: {record} and no COMMIT record exists"
    return why, _close_or_nothing(situation)


def _rolled_back_half(situation: Situation) -> Found:
    """Another half of it in RocksDB was rolled back, and this one was made, or sent, besides."""
    marks = offset_marks(situation.row)
    if not marks:
        return None
    return (
        f"another half message of it was rolled back: op message at commit-log offset {marks[-1]['commit_log_offset']}",
        f"rmqtx rollback {situation.transaction_id} ends the half that is left",
    )


def _close_or_nothing(situation: Situation) -> str:
    if situation.row["advice"] == "close":
        return f"the broker will ask again: rmqtx close {situation.transaction_id} stops that and delivers nothing"
    return "nothing is left to do"


def op_in_memory(situation: Situation, wish: Wish) -> Found:
    """A rollback of it may have been in the memory of a broker that was killed; a commit would be in the log."""
    if wish.action != "commit" or "may_be_decided" not in situation.row["flags"]:
        return None
    asks = "start the broker" if situation.state == "PENDING" else f"rmqtx resume {situation.transaction_id}"
    return (
        "its producer may have rolled it back: ops that were in its broker's memory when that was killed are lost",
        f"{asks}: then the producer is asked again; or ask the application, and --override op-in-memory",
    )


def _is_asked_still(situation: Situation) -> bool:
    """Whether it was given up on, and the check will ask for another copy of it all the same."""
    row = situation.row
    return situation.state == "DISCARDED" and row["advice"] == "wait" and "open_after_decision" in row["flags"]


def not_open(situation: Situation, wish: Wish) -> Found:
    """Nobody asks for it any more, or nobody decided it yet."""
    if prepared_record(situation, wish) is not None:
        return None
    if wish.action == "close" and situation.row["advice"] != "close":
        if situation.state == "PENDING" or _is_asked_still(situation) or _is_open_or_dropped(situation):
            return "it is not decided: closing it would roll it back", "say rollback if that is meant"
        return f"it is {situation.state} and no copy of it is before the check: nothing asks again", "nothing to do"
    if wish.action == "discard" and situation.state == "DISCARDED":
        return "the broker has discarded it already", "its copy is in TRANS_CHECK_MAX_TIME_TOPIC: rmqtx show"
    return None


def still_open(situation: Situation, wish: Wish) -> Found:
    """A half copy is still before the check."""
    is_open = situation.state == "PENDING" or _is_asked_still(situation)
    if wish.action != "resume" or not is_open or "masked" in situation.row["flags"]:
        return None
    if prepared_record(situation, wish) is not None:
        return None
    return (
        f"half copy {situation.newest_queue_offset} is still before the check: a second one may be committed too",
        "wait for the check, or decide it by commit or rollback",
    )


def not_a_half(situation: Situation, wish: Wish) -> Found:
    """No half copy is left to be named."""
    if situation.half_copy is not None or wish.action in ("resume", "commit"):
        return None  # a commit without a half copy asks for a new one first
    left = "only its discard copy is left" if situation.discard_copy is not None else "no copy of it can be read"
    return (
        f"no half copy of it can be named: {left}, and a decision on that could hide another half message",
        f"rmqtx resume {situation.transaction_id} makes a half copy of a discard copy",
    )


def cannot_be_written(situation: Situation, wish: Wish) -> Found:
    """The broker would write something else, as only it can while it runs."""
    why = situation.around.unwritable.get(wish.action)
    if why is None:
        return None
    return f"what its broker would write cannot be appended to its files: {why}", "start the broker and act live"


def younger_copy(situation: Situation, wish: Wish) -> Found:
    """A half copy is younger than the one that was named."""
    newest = situation.newest_queue_offset
    if wish.queue_offset is None or newest is None or wish.queue_offset >= newest:
        return None
    return (
        f"half copy {newest} is younger than {wish.queue_offset}: a decision on an older one leaves it open, to be "
        "asked again and perhaps delivered again",
        "leave --copy away: the newest is named by itself",
    )


def producer_connected(situation: Situation, wish: Wish) -> Found:
    """A producer of the group is connected."""
    producers = situation.around.producers
    if not producers or wish.action in ("resume", "close"):
        return None
    return (
        f"a producer of group {situation.group} is connected ({_few(producers)}): its own decision may follow this "
        "one, and nothing can undo a second delivery",
        "stop it first, or let it answer the check (one that has not sent yet is not even listed)",
    )


def members_that_answer(group: str, members: Sequence[str]) -> tuple[str, str]:
    """The same for a stand-in, whose answers would cross those of a group's own members."""
    return (
        f"group {group} has members of its own ({_few(members)}), which answer checks, and nothing can undo a second "
        "decision",
        "stop them first, or let them answer",
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def decision_in_flight(situation: Situation, wish: Wish) -> Found:
    """A decision that was made before now may not show yet."""
    around = situation.around
    if wish.action == "close":
        return None
    if around.settled_ms < around.settle_ms:
        return (
            f"a decision made {around.settle_ms / 1000:g} s ago may not show yet (the broker's queue, its op batch), "
            f"and only {around.settled_ms / 1000:g} s were waited",
            "leave --settle away: the time that the broker's configuration asks for is waited by itself",
        )
    return None


def another_rmqtx(situation: Situation, _: Wish) -> Found:
    """Another process of ours acts on the group, or may do so."""
    around = situation.around
    if around.rivals:
        return (
            f"another rmqtx acts on group {situation.group} ({', '.join(around.rivals)}): two would not see each "
            "other's decisions",
            "wait until it has ended, then look again",
        )
    if around.rivals_unknown is not None:
        return (
            f"whether another rmqtx acts on the group cannot be asked: {around.rivals_unknown}",
            "make sure that nobody else does",
        )
    return None


def rivals_that_answer(group: str, rivals: Sequence[str]) -> tuple[str, str]:
    """The same for a stand-in."""
    return f"another rmqtx acts on group {group} ({_few(rivals)})", "wait until it has ended"


def immunity(situation: Situation, wish: Wish) -> Found:
    """The time for which its producer asked not to be asked is not over."""
    if "immune" not in situation.row["flags"] or wish.action in ("resume", "close"):
        return None
    return (
        "its producer asked not to be asked yet (CHECK_IMMUNITY_TIME_IN_SECONDS), and that time is not over: it may "
        "still be working on it",
        "wait until it is over",
    )


def _resumes(situation: Situation, wish: Wish) -> bool:
    """Whether a resume is sent: it is asked for, or a commit finds no half copy to name."""
    return wish.action == "resume" or (wish.action == "commit" and situation.half_copy is None)


def resume_unanswered(situation: Situation, wish: Wish) -> Found:
    """The broker never answers a resume."""
    version = situation.around.version
    if not _resumes(situation, wish) or version is None or RESUME_REQUEST.holds(version) or situation.around.is_stopped:
        return None  # a half copy that is appended offline needs no broker that knows the request
    return (
        f"broker {dotted(version)} does not know RESUME_CHECK_HALF_MESSAGE "
        f"({dotted(RESUME_REQUEST.since)} and later do) and never answers it",
        "commit or rollback name the last half copy instead",
    )


def resume_compressed(situation: Situation, wish: Wish) -> Found:
    """The broker would break a compressed body."""
    version, record = situation.around.version, situation.discard_copy or situation.half_copy
    if not _resumes(situation, wish) or record is None or not record.sys_flag & COMPRESSED:
        return None
    is_stopped = situation.around.is_stopped
    breaks = CHECK_INFLATES if is_stopped else RESUME_BREAKS_COMPRESSED
    if version is None or breaks.until is None or not breaks.holds(version):
        return None
    if is_stopped:
        return (
            f"its body is compressed, and the check of broker {dotted(version)} (before {dotted(breaks.until)}) would "
            "put it back so that nobody can read it", f"rmqtx commit {situation.transaction_id} delivers it whole",
        )
    return (
        f"its body is compressed, and broker {dotted(version)} (before {dotted(breaks.until)}) would store it so that "
        "nobody can read it",
        f"rmqtx commit {situation.transaction_id} names its last half copy and delivers it whole",
    )


def resume_too_old(situation: Situation, wish: Wish) -> Found:
    """The check would discard it again unasked."""
    around, born_ms = situation.around, situation.row["born_time_ms"]
    if not _resumes(situation, wish) or wish.action == "commit" or born_ms is None:
        return None
    if is_in_rocksdb(situation.half_copy):  # the check of those knows no such rule
        return None
    age_hours = (around.now_ms - born_ms) / _HOUR_MS
    if age_hours <= around.file_reserved_time_hours:
        return None
    return (
        f"it was born {age_hours:.0f} h ago, longer than fileReservedTime ({around.file_reserved_time_hours} h): the "
        "check would discard it again unasked",
        "raise fileReservedTime on the broker first, or decide it by commit or rollback",
    )
