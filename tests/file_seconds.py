"""How long files of tests take, so that the longest begin first and no process is left with one at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

#: Tests of this folder run in one process: the start of a JVM costs more than most of them.
SPARK_TESTS = "tests/spark/"
#: Seconds of the files that take longer than their number of tests says. Only the order of files depends on them.
SECONDS = {
    SPARK_TESTS: 230,
    "tests/brokers/forcing/test_guards.py": 56,
    "tests/brokers/forcing/test_outcomes.py": 47,
    "tests/brokers/forcing/test_plans.py": 47,
    "tests/brokers/test_broker_logs.py": 61,
    "tests/brokers/test_causes.py": 106,
    "tests/brokers/test_check_loop.py": 54,
    "tests/brokers/test_deadlines.py": 87,
    "tests/brokers/test_growing_tables.py": 188,
    "tests/brokers/test_live.py": 82,
    "tests/brokers/test_live_follow.py": 76,
    "tests/brokers/test_new_stores.py": 78,
    "tests/brokers/test_offline_acts.py": 43,
    "tests/brokers/test_old_rig.py": 38,
    "tests/brokers/test_pending_in_rocksdb.py": 42,
    "tests/brokers/test_proxied.py": 90,
    "tests/brokers/test_rocksdb_acts.py": 37,
    "tests/brokers/test_secured.py": 59,
    "tests/brokers/test_stand_in.py": 77,
    "tests/brokers/test_transaction_tables.py": 80,
    "tests/cli/test_acting_on_files.py": 26,
    "tests/cli/test_one_story.py": 45,
    "tests/cli/test_outputs_arrive.py": 24,
    "tests/cli/test_read_only.py": 35,
    "tests/field/test_field_stores.py": 30,
    "tests/fuzz/test_campaigns.py": 33,
    "tests/histories/test_recorded.py": 35,
    "tests/remoting/test_live_questions.py": 40,
    "tests/repairs/test_apply_crashes.py": 25,
    "tests/repairs/test_bundles.py": 71,
    "tests/verdicts/audit/test_local_engine.py": 33,
    "tests/verdicts/evidence/test_fast_path_on_damage.py": 47,
    "tests/verdicts/follow/test_follow.py": 69,
    "tests/verdicts/missing/test_hidden_records.py": 40,
}
#: Seconds of a test of another file.
_SECONDS_OF_TEST = 0.3


def scope_of(test: str) -> str:
    """Return what runs in one process with a test, by its node id: its file, or all tests of Spark."""
    return SPARK_TESTS if test.startswith(SPARK_TESTS) else test.partition("::")[0]


def order_of(tests: Iterable[str]) -> dict[str, int]:
    """Return the place of each scope of some tests: the longest first."""
    counts = Counter(map(scope_of, tests))
    longest = sorted(counts, key=lambda scope: (-SECONDS.get(scope, counts[scope] * _SECONDS_OF_TEST), scope))
    return {scope: place for place, scope in enumerate(longest)}
