"""The rule of each guard.

Each rule takes the situation as it is now and the request. It returns why the guard refuses, with the evidence, and
what to do instead; or None where the guard does not refuse.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqtx.readers.log.record_layout import COMPRESSED
from rmqtx.readers.model.findings import few
from rmqtx.readers.model.identities import is_of_grpc_client
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.model.releases import (
    CHECK_INFLATES,
    HALF_TOPIC_DESIGN,
    PREPARED_NOT_CHECKED,
    RESUME_BREAKS_COMPRESSED,
    RESUME_REQUEST,
    ROCKSDB_TRANSACTIONS,
    dotted,
)
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.store.broker_settings import reserved_time_ms
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from rmqtx.remoting.protocol.answers import PROXY_PRODUCER
from rmqtx.repairs.acts.named_copies import is_in_rocksdb
from rmqtx.repairs.acts.redelivery_rules import Found, not_over
from rmqtx.repairs.acts.situation import OPEN_OR_DROPPED, ActRequest, Situation
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.records.record_writer import NO_DESTINATION
from rmqtx.verdicts.check.check_rules import is_expired
from rmqtx.verdicts.model.verdict_words import OPEN_AGAIN_FLAG, Advice, State
from rmqtx.verdicts.transactions.reason_codes import REASONS


def slave(situation: Situation, _: ActRequest) -> Found:
    """The broker is a slave."""
    if not situation.conditions.is_slave:
        return None
    return "the broker is a slave, and slaves refuse every decision", "select its master with --broker"


def rocksdb(situation: Situation, request: ActRequest) -> Found:
    """Its half is in RocksDB, and only the broker's table, which was not read, shows whether it is still checked; or
    the broker is older than these halves, and takes its number for one of the ordinary half queue.
    """
    conditions = situation.conditions
    is_live = conditions.is_by_request
    version = conditions.version
    if is_live and request.decides and is_in_rocksdb(situation.named) and version is not None and (
        not ROCKSDB_TRANSACTIONS.holds(version)
    ):
        return (
            f"its half is in RocksDB, and broker {dotted(version)} (before {dotted(ROCKSDB_TRANSACTIONS.since)}) would "
            "write an op message with its number into the ordinary op queue, which hides another half message",
            f"start broker {dotted(ROCKSDB_TRANSACTIONS.since)} or later on these files, and run the command again",
        )
    if request.action != ActKind.RESUME or not situation.is_open_or_dropped:
        return None
    return (
        "no decision of it is recorded, and the broker may still check it "
        f"({REASONS[OPEN_OR_DROPPED].sentence}): a resume adds a second half, and both may be committed",
        f"{_decide(situation)}; the broker accepts a decision whether its half is open or dropped",
    )


def _decide(situation: Situation) -> str:
    identity = situation.transaction_id
    return f"decide it: rmqtx commit {identity} or rmqtx rollback {identity}"


def prepared_record(situation: Situation, request: ActRequest) -> Found:
    """It is a prepared record (before 4.3), and the action does not exist for these or the broker cannot do it."""
    record = situation.half_copy
    if record is None or not record.is_prepared or situation.conditions.sent_to is not None:
        return None
    what = f"it is a prepared record of a broker before 4.3 (commit-log offset {record.commit_log_offset})"
    identity = situation.transaction_id
    if request.action == ActKind.RESUME:
        return (
            f"{what}: no request makes a broker check a prepared record again",
            f"find out whether its local transaction was committed, then {_decide(situation)}",
        )
    if request.action == ActKind.CLOSE:
        if situation.state == State.PENDING:
            return f"{what}, and it is not decided", _decide(situation)
        return (
            f"{what}: prepared records have no op messages, and a ROLLBACK record would contradict its decision",
            "nothing to do: before 4.3 a second decision ends no check",
        )
    version = situation.conditions.version
    if request.action == ActKind.REDELIVER and version is not None and not PREPARED_NOT_CHECKED.holds(version):
        return (
            f"{what}, and whether broker {dotted(version)} commits what its state table has as rolled back is unknown",
            f"send a copy from its files: rmqtx redeliver {identity} --store STORE",
        )
    if situation.conditions.is_of_files or version is None or not HALF_TOPIC_DESIGN.holds(version):
        return None  # a plan made from files: the guard is asked again with the broker's version when it is applied
    return (
        f"{what}, and broker {dotted(version)} cannot decide prepared records: a commit fails with "
        f"NumberFormatException (no REAL_QID), a rollback would write an op message with half queue offset "
        f"{record.queue_offset}, which hides another half message",
        f"send a copy from its files: rmqtx redeliver {identity} --store STORE"
        if request.action == ActKind.REDELIVER else
        f"stop the broker and act on its files: rmqtx {request.action} {identity} --store STORE --to DIR",
    )


def wrong_group(situation: Situation, request: ActRequest) -> Found:
    """It has no producer group, or not the one in the request."""
    group = situation.group
    if group is None:
        return (
            "no copy of it has a producer group, and a decision must name one",
            "it cannot be decided on a live broker",
        )
    if request.group is not None and request.group != group:
        return (
            f"its producer group is {group}, not {request.group}",
            f"check it: rmqtx show {situation.transaction_id}; then give --group {group}",
        )
    return None


def evidence_incomplete(situation: Situation, _: ActRequest) -> Found:
    """Something is unknown that could change the verdict."""
    conditions = situation.conditions
    if situation.state == State.UNDECIDABLE and not situation.is_open_or_dropped:
        return (
            f"its outcome is unknown: {situation.transaction.reason}",
            f"find what is missing first: rmqtx show {situation.transaction_id}",
        )
    if conditions.unread:
        unread = "; ".join(conditions.unread)
        return f"not everything could be read: {unread}", "make it readable and run the command again"
    if conditions.contradictions:
        more = f" (and {len(conditions.contradictions) - 1} more)" if len(conditions.contradictions) > 1 else ""
        return (
            f"records and files of the store contradict each other about it: {conditions.contradictions[0]}{more}",
            f"compare the store with a slave's, or list all findings: rmqtx verify --full {quoted(situation.store)}",
        )
    if conditions.producers is None:
        return (
            f"cannot find out whether a producer of the group is connected: {conditions.producers_unknown}",
            "allow the account to list producer connections, or make sure that no producer of the group runs",
        )
    return None


def already_delivered(situation: Situation, request: ActRequest) -> Found:
    """It has a COMMIT record."""
    finals = situation.transaction.final_records
    if not finals or request.action == ActKind.CLOSE:
        return None
    final = finals[-1]
    where = f"{final.topic} queue {final.queue_id} at queue offset {final.queue_offset}"
    what = "committed: COMMIT record" if situation.state == State.COMMITTED else "delivered: a copy is"
    why = f"it is already {what} in {where} (commit-log offset {final.commit_log_offset})"
    late = "it is delivered, or will be, and nothing can undo this: inform the owners of its consumers"
    return why, _close_or_nothing(situation, late if request.action in (ActKind.ROLLBACK, ActKind.DISCARD) else "")


def already_decided(situation: Situation, request: ActRequest) -> Found:
    """An op message or a ROLLBACK record settled it, and it has no COMMIT record."""
    if situation.state in (State.PENDING, State.UNDECIDABLE) and request.action == ActKind.COMMIT:
        return _rolled_back_half(situation) if is_in_rocksdb(situation.half_copy) else None
    is_redelivered = request.action == ActKind.REDELIVER and not situation.is_sent_as_half
    if situation.state != State.ROLLED_BACK or request.action == ActKind.CLOSE or is_redelivered:
        return None
    mark = situation.transaction.op_marks[-1]
    record = (
        f"ROLLBACK record or op message at commit-log offset {mark.commit_log_offset}"
        if mark.half_queue_offset is None
        else f"the op message at queue offset {mark.queue_offset} settles half copy {mark.half_queue_offset}"
    )
    why = f"it is already rolled back: {record}, and there is no COMMIT record"
    late = f"it is not delivered; to deliver it although it was rolled back: rmqtx redeliver {situation.transaction_id}"
    return why, _close_or_nothing(situation, late if request.action in (ActKind.COMMIT, ActKind.RESUME) else "")


def _rolled_back_half(situation: Situation) -> Found:
    """The transaction has several halves in RocksDB, and another one was rolled back."""
    marks = situation.transaction.offset_marks
    if not marks:
        return None
    return (
        f"another half message of it was rolled back: op message at commit-log offset {marks[-1].commit_log_offset}",
        f"roll back the remaining half too: rmqtx rollback {situation.transaction_id}",
    )


def _close_or_nothing(situation: Situation, late: str) -> str:
    """What to do with a decided transaction; `late`: what the other decision leaves to do, if anything."""
    if situation.transaction.advice == Advice.CLOSE:
        is_asked = situation.transaction.answer_effect is not None
        effect = "the broker will check it again" if is_asked else "the check will still reach a copy of it"
        close = f"{effect}; to stop the check, rmqtx close {situation.transaction_id}"
        return f"{late}; {close}" if late else close
    return late or "nothing to do"


def may_deliver_rolled_back(action: ActKind, flags: Sequence[str]) -> bool:
    """Whether an action on a transaction with these flags may deliver what was rolled back just before a kill.

    A redelivery also delivers what the broker recorded as rolled back: its operator has other proof.
    """
    return action == ActKind.COMMIT and "may_be_decided" in flags


def op_in_memory(situation: Situation, request: ActRequest) -> Found:
    """Its rollback may have been lost with the memory of a killed broker; a commit would be in the log."""
    if not may_deliver_rolled_back(request.action, situation.transaction.flags):
        return None
    looked_up = "look up its outcome in the application and add --override op-in-memory --reason TEXT"
    commands = {Advice.WAIT: "start the broker", Advice.RESUME: f"rmqtx resume {situation.transaction_id}"}
    asks = commands.get(situation.transaction.advice)
    return (
        "its producer may have rolled it back: the broker was killed, and op messages in its memory were lost",
        f"let the broker check it again ({asks}), or {looked_up}" if asks else
        f"{looked_up}, before the broker starts: its next round would discard the transaction without asking",
    )


def _is_still_checked(situation: Situation) -> bool:
    """Whether the broker discarded it, and the check will still reach another copy of it."""
    asked = situation.transaction
    return asked.state == State.DISCARDED and asked.advice == Advice.WAIT and OPEN_AGAIN_FLAG in asked.flags


def not_open(situation: Situation, request: ActRequest) -> Found:
    """For a close: it is not decided, or is no longer checked. For a discard: it is already discarded."""
    if prepared_record(situation, request) is not None:
        return None
    if request.action == ActKind.CLOSE and situation.transaction.advice != Advice.CLOSE:
        if situation.state == State.PENDING or _is_still_checked(situation) or situation.is_open_or_dropped:
            return (
                "it is not decided, and a close would roll it back",
                f"to roll it back: rmqtx rollback {situation.transaction_id}",
            )
        return f"it is {situation.state}, and the check will not reach a copy of it again", "nothing to do"
    if request.action == ActKind.DISCARD and situation.state == State.DISCARDED:
        return (
            "the broker has already discarded it",
            f"its discard copy is in TRANS_CHECK_MAX_TIME_TOPIC: rmqtx show {situation.transaction_id}",
        )
    return None


def still_open(situation: Situation, request: ActRequest) -> Found:
    """The check will still reach a half copy; for a redelivery also: the broker may still check it."""
    if request.action == ActKind.REDELIVER:
        return not_over(situation)
    is_open = situation.state == State.PENDING or _is_still_checked(situation)
    if request.action != ActKind.RESUME or not is_open or "masked" in situation.transaction.flags:
        return None
    if prepared_record(situation, request) is not None:
        return None
    place, both = f"half copy {situation.newest_queue_offset}", "with a second copy, both may be committed"
    if situation.transaction.advice == Advice.DECIDE:  # waiting is useless: no producer is asked
        return f"the check has not passed {place}: {both}", _decide(situation)
    return f"the check will still reach {place}: {both}", f"wait for the check, or {_decide(situation)}"


def not_a_half(situation: Situation, request: ActRequest) -> Found:
    """No half copy is left that a decision could name."""
    if situation.half_copy is not None or request.action in (ActKind.RESUME, ActKind.COMMIT):
        return None  # a commit without a half copy asks for a new one first
    identity = situation.transaction_id
    if situation.conditions.sent_to is not None:
        return None  # refused because no copy of it can be read
    if request.action == ActKind.REDELIVER:
        return (
            "no half copy of it is left in the log of the broker: a redelivery must name one",
            f"deliver its discard copy: rmqtx commit {identity}" if situation.discard_copy is not None
            else "send a copy from files that still have it: --store STORE",
        )
    left = "only its discard copy is left" if situation.discard_copy is not None else "no copy of it can be read"
    return (
        f"no half copy of it is left to name: {left}, and a decision that names no half copy could hide another half "
        "message",
        f"make a half copy from its discard copy: rmqtx resume {situation.transaction_id}",
    )


def _resumed(situation: Situation) -> str:
    """Return the command that appends a half message again. Files whose queue began again at 0 take none: the next one
    would get a number that the log has.
    """
    command = f"rmqtx resume {situation.transaction_id}"
    if situation.conditions.takes_halves:
        return command
    return f"start the broker, because the numbers of its half queue began again, then {command} -n HOST:PORT"


def number_taken(situation: Situation, request: ActRequest) -> Found:
    """Another half message has, or will have, the slot with its half queue offset; a resume writes no op message."""
    named = situation.named
    if situation.conditions.sent_to is not None:
        return None
    if request.action == ActKind.RESUME or named is None or "number_taken" not in situation.transaction.flags:
        return None
    late = (
        "nothing to do: its state does not change"
        if situation.state in (State.COMMITTED, State.ROLLED_BACK)
        else "append it again, in a slot of its own, and have the check of that copy answered: "
        f"{_resumed(situation)}, then rmqtx answer"
    )
    return (
        f"another half message has, or will have, slot {named.queue_offset} of the half queue: the op message "
        "of this decision would name that number, and the check would skip the other half message",
        late,
    )


def number_shared(situation: Situation, request: ActRequest) -> Found:
    """Another half message has its half queue offset, and only an op message would be written. A COMMIT record names
    its half message by the commit-log offset; a copy that was put back has a number of its own.
    """
    named = situation.named
    flags = situation.transaction.flags
    is_ambiguous = request.action in (ActKind.ROLLBACK, ActKind.DISCARD) and "number_shared" in flags
    if named is None or not is_ambiguous or len(situation.transaction.half_copies) > 1:
        return None
    if "number_taken" in flags:
        return None  # refused for that
    decided = f"rmqtx {request.action} {situation.transaction_id} -n HOST:PORT"
    return (
        f"another half message has half queue offset {named.queue_offset} too: the op message of this decision could "
        "mean either, so both would be UNDECIDABLE afterwards",
        f"let the check of a running broker put it back with a number of its own, then {decided}; or let its producer "
        "answer that check"
        if situation.state is State.PENDING
        else f"append it again, with a number of its own, and decide that copy: {_resumed(situation)}",
    )


def cannot_be_written(situation: Situation, request: ActRequest) -> Found:
    """The act needs records that cannot be appended to the files of a stopped broker, or that its check does not read.

    Where its check does not read the op message, a broker delivers the message, and checks or discards the transaction
    once more: 4.3.0 to 5.5.0 with an op cursor after the end of the op queue, 4.9.7 to 5.5.0 with a filler at its end,
    4.3.0 to 4.5.2 with a compressed copy that the check puts back.
    """
    if request.action == ActKind.REDELIVER and situation.conditions.is_stopped:
        return (
            "a redelivery is a request to a running broker, and no change of files",
            f"start the broker: rmqtx redeliver {situation.transaction_id} -n HOST:PORT --reason TEXT",
        )
    found = _unread_half(situation) if request.action == ActKind.RESUME else _read_again(situation, request)
    if found is not None:
        return found
    why = situation.conditions.unwritable.get(request.action)
    if why is None:
        return None
    if why == NO_DESTINATION:
        return f"no COMMIT record can be made of it: {why}", "send the message again from its application"
    return f"the records cannot be appended to the files of a stopped broker: {why}", "start the broker and act live"


def _unread_half(situation: Situation) -> Found:
    """The check does not read the half copy of a resume."""
    is_hidden = HALF_TOPIC in situation.conditions.hides_new
    return _hidden(situation, HALF_TOPIC, "half copy", "resume") if is_hidden else None


def _hidden(situation: Situation, topic: str, record: str, action: str) -> Found:
    return (
        f"slots of {topic} lead to no record, so the check does not read the {record} of this {action}",
        f"first write the queue again: rmqtx rebuild queues {quoted(situation.store)} --to NEW"
        if situation.conditions.is_stopped
        else "run the command again after the next round of the check, which passes them; or stop the broker, and "
        "write the queue again: rmqtx rebuild queues STORE --to NEW",
    )


def _read_again(situation: Situation, request: ActRequest) -> Found:
    """The check does not read the op message before a half copy that this names."""
    conditions = situation.conditions
    again = conditions.read_again
    if again is None:
        return None
    if OP_TOPIC in conditions.hides_new:
        return _hidden(situation, OP_TOPIC, "op message", request.action)
    if conditions.unread_op is not None:
        cursor, number = conditions.unread_op
        return (
            f"the op cursor {cursor} is after the end of the op queue, so the check does not read op message {number} "
            "of this decision",
            f"first set the cursor: rmqtx cursor set --op {number}" if conditions.is_stopped
            else "run the command again after the next round of the check, which corrects the cursor",
        )
    naming = f"verify {quoted(situation.store)}" if conditions.is_stopped else "pending"
    stopping = again.stopping_id or f"its transaction (rmqtx {naming} names it)"
    return (
        f"the check ends at half queue offset {again.end_offset} and passes the op message of this decision, so its "
        f"next round reads half copy {again.queue_offset}, although that is decided",
        f"decide {stopping} too, with one command, or wait until the check has passed it",
    )


def younger_copy(situation: Situation, request: ActRequest) -> Found:
    """A half copy is newer than the one in the request."""
    newest = situation.newest_queue_offset
    if request.queue_offset is None or newest is None or request.queue_offset >= newest:
        return None
    return (
        f"half copy {newest} is newer than {request.queue_offset}: a decision on the older copy leaves the newer one "
        "open, and the broker checks it again and may deliver it again",
        "omit --copy: the newest copy is the default",
    )


def producer_connected(situation: Situation, request: ActRequest) -> Found:
    """A producer of the group is connected."""
    producers = situation.conditions.producers
    if not producers or request.action in (ActKind.RESUME, ActKind.CLOSE) or situation.is_sent_as_half:
        return None
    if are_proxies(producers):
        is_shared = situation.group == situation.transaction.topic and is_of_grpc_client(situation.transaction_id)
        return behind_proxy(situation.group, producers, is_shared=is_shared)
    if request.action == ActKind.REDELIVER:
        return (
            f"a producer of group {situation.group} is connected ({few(producers, 3)}): if its local transaction still "
            "runs, its own decision may follow, and nothing can undo a second delivery",
            "if the application ended that local transaction: --override producer-connected --reason TEXT; else stop "
            "the producer first",
        )
    return (
        f"a producer of group {situation.group} is connected ({few(producers, 3)}): its own decision may follow this "
        "one, and nothing can undo a second delivery",
        "stop the producer first, or let it answer the check (a producer that has not sent yet is not listed)",
    )


def are_proxies(producers: Sequence[str]) -> bool:
    """Whether only proxies are registered as producers of a group."""
    return all(one.startswith(PROXY_PRODUCER) for one in producers)


def behind_proxy(group: str | None, proxies: Sequence[str], *, is_shared: bool) -> tuple[str, str]:
    """Why an action on a group of which only proxies are registered is refused, and what to do instead."""
    shared = "; the group is the name of the topic, and all its gRPC clients share it" if is_shared else ""
    return (
        f"only a proxy is registered for group {group} ({few(proxies, 3)}): whether the application is connected "
        f"to the proxy is unknown, and its own decision may follow{shared}",
        "stop the application first, and try again when the broker no longer lists the proxy (about 4 minutes later)",
    )


def members_that_answer(group: str, members: Sequence[str]) -> tuple[str, str]:
    """Why a stand-in refuses: producers of the group are connected and answer checks themselves."""
    if are_proxies(members):
        return behind_proxy(group, members, is_shared=False)
    return (
        f"producers of group {group} are connected ({few(members, 3)}) and answer checks, and nothing can undo a "
        "second decision",
        "stop them first, or let them answer",
    )


def decision_in_flight(situation: Situation, request: ActRequest) -> Found:
    """A recent decision may not be visible yet."""
    conditions = situation.conditions
    if request.action == ActKind.CLOSE:
        return None
    if conditions.settled_ms < conditions.settle_ms:
        return (
            f"a decision of the last {conditions.settle_ms / 1000:g} s may not be visible yet (it may be in the "
            f"broker's request queue or op batch), and the wait was only {conditions.settled_ms / 1000:g} s",
            "omit --settle: the default wait is computed from the broker's configuration",
        )
    return None


def another_rmqtx(situation: Situation, _: ActRequest) -> Found:
    """Another rmqtx process acts on the group, or may do so."""
    conditions = situation.conditions
    if conditions.rivals:
        return (
            f"another rmqtx process acts on group {situation.group} ({', '.join(conditions.rivals)}): neither would "
            "see the other's decisions",
            "wait until it has ended, then run the command again",
        )
    if conditions.rivals_unknown is not None:
        return (
            f"cannot find out whether another rmqtx process acts on the group: {conditions.rivals_unknown}",
            "make sure that no other rmqtx process acts on it",
        )
    return None


def rivals_that_answer(group: str, rivals: Sequence[str]) -> tuple[str, str]:
    """Why a stand-in refuses: another rmqtx process acts on the group."""
    return f"another rmqtx process acts on group {group} ({few(rivals, 3)})", "wait until it has ended"


def immunity(situation: Situation, request: ActRequest) -> Found:
    """The time during which its producer must not be asked is not over."""
    is_only_checked = request.action in (ActKind.RESUME, ActKind.CLOSE) or situation.is_sent_as_half
    if "immune" not in situation.transaction.flags or is_only_checked:
        return None
    return (
        "its producer set CHECK_IMMUNITY_TIME_IN_SECONDS, and that time is not over: the local transaction may still "
        "be running",
        "wait until that time is over",
    )


def _resumes(situation: Situation, request: ActRequest) -> bool:
    """Whether a resume is sent: it is requested, or a commit finds no half copy to name."""
    return request.action == ActKind.RESUME or (request.action == ActKind.COMMIT and situation.half_copy is None)


def resume_unanswered(situation: Situation, request: ActRequest) -> Found:
    """The broker never answers a resume."""
    version = situation.conditions.version
    if situation.conditions.is_stopped or not _resumes(situation, request) or version is None:
        return None  # a half copy appended to stopped files needs no broker that supports the request
    if RESUME_REQUEST.holds(version):
        return None
    return (
        f"broker {dotted(version)} does not support RESUME_CHECK_HALF_MESSAGE "
        f"(since {dotted(RESUME_REQUEST.since)}) and never answers it",
        f"its last half copy can be decided instead: rmqtx commit {situation.transaction_id} or "
        f"rmqtx rollback {situation.transaction_id}",
    )


def resume_compressed(situation: Situation, request: ActRequest) -> Found:
    """The broker would corrupt a compressed body."""
    version, record = situation.conditions.version, situation.discard_copy or situation.half_copy
    if not _resumes(situation, request) or record is None or not record.sys_flag & COMPRESSED:
        return None
    is_stopped = situation.conditions.is_stopped
    breaks = CHECK_INFLATES if is_stopped else RESUME_BREAKS_COMPRESSED
    if version is None or breaks.until is None or not breaks.holds(version):
        return None
    if is_stopped:
        return (
            f"its body is compressed, and the check of broker {dotted(version)} (before {dotted(breaks.until)}) would "
            "put back a copy that no consumer can read",
            f"to deliver it intact: rmqtx commit {situation.transaction_id}",
        )
    return (
        f"its body is compressed, and broker {dotted(version)} (before {dotted(breaks.until)}) would store a copy that "
        "no consumer can read",
        f"to deliver its last half copy intact: rmqtx commit {situation.transaction_id}",
    )


def resume_too_old(situation: Situation, request: ActRequest) -> Found:
    """The check would discard it again without asking the producer."""
    conditions, born_ms = situation.conditions, situation.transaction.born_time_ms
    if not _resumes(situation, request) or request.action == ActKind.COMMIT or born_ms is None:
        return None
    if is_in_rocksdb(situation.half_copy) or situation.is_prepared:  # their checks do not have this rule
        return None
    age_ms, reserved_hours = conditions.now_ms - born_ms, conditions.file_reserved_time_hours
    if not is_expired(age_ms, reserved_time_ms(reserved_hours)):
        return None
    is_decided = situation.transaction.is_decided
    return (
        f"it was born {age_ms / HOUR_MS:.0f} h ago, longer than fileReservedTime ({reserved_hours} h): "
        "the check would discard it again without asking the producer",
        f"raise fileReservedTime on the broker first{'' if is_decided else ', or ' + _decide(situation)}",
    )
