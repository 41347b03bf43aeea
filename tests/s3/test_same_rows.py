"""A store on an object store, read in place, gives what it gives on disk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqtx.readers.jobs.workers import Workers
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import show
from tests.forge.stores import settings_of
from tests.representatives import rest_is_slow
from tests.s3.conftest import Copied, Run
from tests.s3.server import S3Server
from tests.s3.tasks import records_of
from tests.verdicts.audit.test_marked_copies import flagged, one_of, with_copy

STORES = ["common-5.3.3", "killed-4.4.0", "multipath-5.1.4", "cqext-4.9.7", "batchcq-5.5.0"]
VERBS = [
    ["pending", "--all-open"],
    ["pending", "--scan"],
    ["audit"],
    ["audit", "--findings"],
    ["decode", "commitlog", "--body", "raw", "--check-crc"],
    ["decode", "commitlog", "--coverage"],
    *(["decode", kind] for kind in ("consumequeue", "half", "op", "index", "checkpoint", "cursors")),
]


@pytest.mark.parametrize("name", rest_is_slow(STORES, slow=0))
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_rows_are_the_same_but_for_their_place(
    s3: S3Server, copied: Copied, rmqtx: Run, name: str, verb: list[str]
) -> None:
    local, uri = copied(name)
    here = rmqtx(*verb, local, "--format", "jsonl")
    there = rmqtx(*verb, uri, "--format", "jsonl")
    assert (there.status, there.out.replace(uri, "STORE")) == (here.status, here.out.replace(str(local), "STORE"))
    assert here.out or verb[0] == "pending" or "--findings" in verb or verb[-1] in ("op", "half")
    assert any(request.startswith("GET /evidence") for request in s3.requests())


def test_stores_says_the_same_but_for_what_a_copy_cannot_show(s3: S3Server, copied: Copied, rmqtx: Run) -> None:
    local, uri = copied("killed-4.4.0")
    fields = "generation,broker_versions,is_aborted,log_files_count,log_end_offset,log_size_bytes,topics_count," \
        "queues_count,index_files_count,half_min_offset,half_max_offset,half_next_offset,op_max_offset,discarded_count"
    here = rmqtx("stores", local, "--format", "json", "--fields", fields)
    there = rmqtx("stores", uri, "--format", "json", "--fields", fields)
    assert (there.status, there.out) == (here.status, here.out)


def test_show_finds_a_transaction_and_its_consumers(s3: S3Server, copied: Copied, rmqtx: Run) -> None:
    local, uri = copied("common-5.3.3")
    identity = rmqtx("audit", local, "-q", "--where", "state = COMMITTED", "--format", "csv", "--fields",
                     "transaction_id", "--limit", "1").out.splitlines()[1]
    here, there = (rmqtx("show", identity, "--store", place) for place in (local, uri))
    assert there.status == 0
    assert there.out == here.out
    assert "COMMITTED" in there.out


def test_the_header_says_that_it_is_a_copy(s3: S3Server, copied: Copied, rmqtx: Run) -> None:
    stopped, killed = copied("common-5.3.3")[1], copied("killed-4.4.0")[1]
    err = rmqtx("pending", stopped, killed).err
    assert f"{stopped}: a copy as of " in err
    assert "not locked here; when it was copied, the broker had stopped cleanly; broker" in err
    assert "the broker ran, or had not stopped cleanly" in err


def test_patterns_name_stores(s3: S3Server, copied: Copied, rmqtx: Run) -> None:
    names = ["common-5.3.3", "killed-4.4.0"]
    uris = [copied(name)[1] for name in names]
    assert [uri for uri in expand(["s3://evidence/*/store"]) if uri in uris] == uris
    assert expand(["s3://evidence/killed-[0-9].?.0/st*"]) == [uris[1]]
    result = rmqtx("pending", "s3://evidence/[ck]*[34].?/store", "--format", "csv", "--fields", "store", "-q")
    assert set(result.out.splitlines()) > {"store", uris[0]}


def test_several_processes_read_one_store(s3: S3Server, copied: Copied) -> None:
    local, uri = copied("common-5.3.3")
    found = []
    for root in (local, uri):
        plan = plan_splits([open_store(root)], split_bytes=64 << 10)
        assert len(plan) > 3
        with Workers(2) as workers:
            results = list(workers.run(records_of, plan))
        found.append([offset for _, offsets in results for offset in offsets])
        assert len({process for process, _ in results}) > 1
    assert found[0] == found[1]
    assert len(found[1]) > 400


def test_a_store_travels_without_credentials(s3: S3Server, copied: Copied) -> None:
    import pickle

    from tests.s3.server import KEY, SECRET

    name = "common-5.3.3"
    store = open_store(copied(name)[1])
    assert audit([store], settings_of(name)).table().num_rows
    data = pickle.dumps(store)
    assert KEY.encode() not in data
    assert SECRET.encode() not in data
    again = pickle.loads(data)
    assert again == store
    assert audit([again], settings_of(name)).table().num_rows


def test_requests_are_few(s3: S3Server, copied: Copied, rmqtx: Run) -> None:
    """A request costs tens of milliseconds: files are opened once, directories listed once, near reads are one.

    Each command reads a copy that no command has read, as a new process does, because blocks stay in memory.
    Only the directory of the log is listed twice: whether a broker starts depends on every name in it, not on segments.
    """
    local, _ = copied("common-5.3.3")
    for verb, most in (("pending", 46), ("audit", 48), ("stores", 47)):
        uri = s3.upload(local, f"evidence/{verb}/store")
        s3.requests()
        rmqtx(verb, uri)
        requests = s3.requests()
        kinds = Counter(request.split(" ", 1)[0] for request in requests)
        assert len(requests) <= most, (verb, kinds)
        again = [request for request, count in Counter(requests).items() if count > 1]
        assert len(again) <= 1, again
        assert all(request.endswith("%2Fcommitlog%2F") for request in again), again


def test_redelivered_copies_have_their_flag(s3: S3Server, tmp_path: Path) -> None:
    """The scan finds them: of many transactions the index is not asked, which takes requests for each."""
    identity, topic = one_of("rollback")
    root = with_copy(tmp_path, identity, topic)
    store = open_store(s3.upload(root, "evidence/redelivered"))
    for at_ms in (None, 4_000_000_000_000):
        assert flagged(audit([store], settings_of("common-5.3.3"), at_ms=at_ms).table()) == [identity]
    assert flagged(show([store], settings_of("common-5.3.3"), identity).table()) == [identity]
