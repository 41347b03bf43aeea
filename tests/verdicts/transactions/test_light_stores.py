"""enableLmq: the cursors of real brokers in another file, which 4.9.3 does not read when it starts."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from rmqtx.readers.cursors import check_cursors, read_cursors
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.check.check_rules import Action
from rmqtx.verdicts.simulation.next_start import known_start, starting_cursors, starting_findings
from rmqtx.verdicts.simulation.simulation import Simulated
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks, with_cursors
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened

NAMES = ("lmq-4.9.3", "lmq-5.3.2")
USUAL, LIGHT = "consumerOffset.json", "lmqConsumerOffset.json"
HOUR_NS = 3_600 * 10**9


def version_of(name: str) -> str:
    return str(corpus.recipe(name)["version"])


def played(name: str) -> Simulated:
    """The check that a broker started now would make."""
    store, conf = opened(name), corpus.recipe(name)["broker_conf"]
    first_ms = min(line["store_time_ms"] for line in corpus.truth(name) if line["event"] == "as_is_put_back")
    settings = broker_settings(store, conf=conf, version=version_of(name))
    (found,), findings, _ = simulated_checks(
        store, [SimulatedConfiguration("as is", settings, conf)], check_cursors(store), first_ms
    )
    assert findings == []
    assert isinstance(found, Simulated)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_restarted_broker_puts_back_and_discards_the_predicted_ones(name: str) -> None:
    """The same version was started on a copy of the store with its own settings, until it had nothing more to do."""
    predicted: dict[str, Counter[tuple[str, int]]] = {"as_is_put_back": Counter(), "as_is_discarded": Counter()}
    simulated = played(name)
    for step in (step for one in islice(simulated.rounds(), 40) for step in one.steps):
        if step.half is None or step.action not in (Action.CHECKED, Action.DISCARDED):
            continue
        kind = "as_is_put_back" if step.action is Action.CHECKED else "as_is_discarded"
        copy = step.written or step.half
        words = simulated.words(copy.row)
        predicted[kind][words["transaction_id"], copy.checks_count or 0] += 1
    for kind, expected in predicted.items():
        lines = [line for line in corpus.truth(name) if line["event"] == kind]
        real = Counter(
            (line["transaction_id"], int(line["properties"]["TRANSACTION_CHECK_TIMES"])) for line in lines
        )
        assert expected == real, kind


def test_a_broker_that_forgets_its_cursors_gives_up_on_what_was_settled() -> None:
    settled = {row["transaction_id"] for row in corpus.expected("lmq-4.9.3") if not row["open"]}
    events = {"as_is_discarded": "lmq-4.9.3", "none": "lmq-5.3.2"}
    given_up = {
        name: {line["transaction_id"] for line in corpus.truth(name) if line["event"] == "as_is_discarded"}
        for name in events.values()
    }
    assert len(given_up["lmq-4.9.3"] & settled) >= 10
    assert given_up["lmq-5.3.2"] == {row["transaction_id"] for row in corpus.expected("lmq-5.3.2") if row["open"]}


def notes_of(name: str, version: str | None, **conf: str) -> list[str]:
    found = list(starting_findings(opened(name), broker_settings(opened(name), version=version), conf))
    assert {finding.code for finding in found} <= {"cursors-not-loaded"}
    return [str(finding.actual).replace(opened(name).root, "STORE") for finding in found]


UNREAD = "broker 4.9.3 does not read STORE/config/lmqConsumerOffset.json when it starts: "
AT_BEGIN = "its check begins at the first messages of the queues; 67 half copies are read again"


def test_verify_foretells_it_of_the_version_that_does_it() -> None:
    assert notes_of("lmq-4.9.3", "4.9.3") == [UNREAD + AT_BEGIN]
    assert notes_of("lmq-4.9.3", None) == ["perhaps (--broker-version): " + UNREAD + AT_BEGIN]
    assert notes_of("lmq-4.9.3", "4.9.4") == []
    assert notes_of("lmq-5.3.2", None) == []


def test_a_broker_whose_setting_was_switched_reads_the_other_file() -> None:
    """Seen when a 5.3.3 was started with enableLmq for the first time: it began at the first half."""
    words = "with enableLmq=true the broker reads STORE/config/lmqConsumerOffset.json when it starts, which has no"
    (found,) = notes_of("common-5.3.3", None, enableLmq="true")
    assert found.startswith(f"{words} cursors: its check begins at the first messages of the queues; ")
    assert notes_of("common-5.3.3", None, enableLmq="false") == []
    assert notes_of("common-4.4.0", "4.4.0", enableLmq="true") == [], "no broker before 4.9.3 knows the setting"
    assert notes_of("lmq-switched-5.3.3", None, enableLmq="TRUE") == []
    assert notes_of("lmq-switched-5.3.3", None, enableLmq="false") == [
        "with enableLmq=false the broker reads STORE/config/consumerOffset.json when it starts: its check begins at"
        " half 37; 88 half copies are read again"
    ]


def test_a_broker_starts_without_what_it_does_not_read() -> None:
    store = opened("lmq-4.9.3")
    cursors = check_cursors(store)
    assert (cursors.half, cursors.op) == ({0: 67}, {0: 25})
    started, why = starting_cursors(store, cursors, (4, 9, 3))
    assert (started.half, started.op) == ({}, {})
    assert why is not None
    assert starting_cursors(store, cursors, (4, 9, 4)) == (cursors, None)
    wanted = with_cursors(cursors, 60, None)
    assert starting_cursors(store, wanted, (4, 9, 3)) == (wanted, None), "as if they stood there"


def test_the_cursors_of_a_start_are_known_only_if_every_possible_release_has_them() -> None:
    """Else settled transactions would have deadlines where the release of the broker is not known."""
    store = opened("lmq-4.9.3")
    cursors = check_cursors(store)
    assert known_start(store, cursors, broker_settings(store, version="4.9.3")).half == {}
    for settings in (broker_settings(store), broker_settings(store, version="4.9.4")):
        assert known_start(store, cursors, settings) == cursors


@pytest.mark.parametrize("name", NAMES)
def test_light_groups_have_cursors_too(name: str) -> None:
    rows = read_cursors(opened(name)).table().to_pylist()
    light = [(row["topic"], row["group"], row["queue_id"], row["next_queue_offset"]) for row in rows
             if row["group"].startswith("%LMQ%")]
    assert light == [("%LMQ%one", "%LMQ%readers", 0, 1)]
    assert {row["file"] for row in rows} == {opened(name).place("config", LIGHT)}


def file_with(root: Path, name: str, half: int, op: int, age_ns: int) -> None:
    path = root / "config" / name
    path.write_text(
        f'{{"offsetTable":{{"{HALF_TOPIC}@{CHECK_GROUP}":{{0:{half}}},"{OP_TOPIC}@{CHECK_GROUP}":{{0:{op}}}}}}}'
    )
    now_ns = path.stat().st_mtime_ns
    os.utime(path, ns=(now_ns - age_ns, now_ns - age_ns))


@pytest.mark.parametrize(
    ("usual", "light", "chosen", "codes"),
    [
        ((5, 2, HOUR_NS), (40, 9, 0), LIGHT, []),
        ((40, 9, 0), (5, 2, HOUR_NS), USUAL, []),
        ((40, 9, HOUR_NS), (5, 2, 0), LIGHT, ["cursors-contradict"]),
        ((5, 2, 0), (40, 9, HOUR_NS), USUAL, ["cursors-contradict"]),
        ((5, 2, 0), (40, 9, 0), LIGHT, []),  # copied: the times say nothing, the check goes forward
        ((40, 9, 0), (5, 2, 0), USUAL, []),
    ],
)
def test_of_two_files_the_one_written_last_is_the_brokers(
    usual: tuple[int, int, int], light: tuple[int, int, int], chosen: str, codes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    file_with(tmp_path, USUAL, *usual)
    file_with(tmp_path, LIGHT, *light)
    found = check_cursors(open_store(tmp_path))
    assert found.file == str(tmp_path / "config" / chosen)
    assert found.half == {0: (usual if chosen == USUAL else light)[0]}
    assert [finding.code for finding in found.findings] == codes


def test_the_backup_of_the_light_file_is_read_as_brokers_do(tmp_path: Path) -> None:
    root = copy_of("lmq-5.3.2", tmp_path)
    (root / "config" / LIGHT).write_bytes(b"")
    found = check_cursors(open_store(root))
    assert found.half is not None
    assert [finding.code for finding in found.findings] == ["config-backup"]


@pytest.mark.parametrize(("age_ns", "codes"), [(0, ["config-damaged"]), (HOUR_NS, [])])
def test_a_kill_that_left_the_young_file_empty_leaves_the_old_one_no_truth(
    age_ns: int, codes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    file_with(tmp_path, USUAL, 40, 9, HOUR_NS - age_ns)
    file_with(tmp_path, LIGHT, 0, 0, age_ns)
    now_ns = (tmp_path / "config" / LIGHT).stat().st_mtime_ns
    (tmp_path / "config" / LIGHT).write_bytes(b"")
    os.utime(tmp_path / "config" / LIGHT, ns=(now_ns, now_ns))
    found = check_cursors(open_store(tmp_path))
    assert [finding.code for finding in found.findings] == codes
    assert found.half == ({0: 40} if age_ns else None)


def test_of_two_files_without_times_the_one_that_can_be_read_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    file_with(tmp_path, USUAL, 40, 9, 0)
    (tmp_path / "config" / LIGHT).write_bytes(b"")
    assert [finding.code for finding in check_cursors(open_store(tmp_path)).findings] == ["cursors-contradict"]
