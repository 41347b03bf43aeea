"""Points in time as timestamps: every column that holds one, in lists too, and nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rmqtx.readers.model.moments import TIME_END_MS, is_time, timestamp_schema, with_timestamps
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx_cli.pages.glossary import RESULT_TABLES
from tests.forge.stores import opened, settings_of

TIMESTAMP = pa.timestamp("ms", "UTC")


def parts(schema: pa.Schema | pa.StructType) -> list[pa.Field]:
    """All fields, those inside lists too."""
    found = []
    for field in schema:
        inner = field.type.value_type if pa.types.is_list(field.type) else field.type
        found += [field, *(parts(inner) if pa.types.is_struct(inner) else [])]
    return found


@pytest.mark.parametrize("name", sorted(RESULT_TABLES))
def test_names_stay_unique_and_durations_stay_numbers(name: str) -> None:
    before, after = parts(RESULT_TABLES[name]), parts(timestamp_schema(RESULT_TABLES[name]))
    assert len(before) == len(after)
    assert len(set(timestamp_schema(RESULT_TABLES[name]).names)) == len(RESULT_TABLES[name].names)
    for old, new in zip(before, after, strict=True):
        assert (new.type == TIMESTAMP, new.name) == (is_time(old.name), old.name.removesuffix("_ms")) or (
            not is_time(old.name) and new.name == old.name
        )
        assert new.metadata == old.metadata


def test_the_values_are_the_same_moments() -> None:
    rows = audit([opened("common-5.3.3")], settings_of("common-5.3.3")).table()
    for batch in [*rows.to_batches(), rows.slice(7, 20).combine_chunks().to_batches()[0]]:
        found = with_timestamps(batch)
        found.validate(full=True)
        assert found.schema.equals(timestamp_schema(batch.schema))
        for old, new in zip(batch.to_pylist(), found.to_pylist(), strict=True):
            for name in ("born_time_ms", "half_store_time_ms", "decided_time_ms", "discard_at_ms"):
                made = new[name.removesuffix("_ms")]
                assert (None if made is None else round(made.timestamp() * 1000)) == old[name]
            for name in ("half_copies", "op_marks", "final_records", "discard_copies"):
                assert [round(one["store_time"].timestamp() * 1000) for one in new[name]] == [
                    one["store_time_ms"] for one in old[name]
                ]
                assert [one["commit_log_offset"] for one in new[name]] == [
                    one["commit_log_offset"] for one in old[name]
                ]


def test_what_no_calendar_reaches_is_null() -> None:
    times = pa.record_batch({"time_ms": pa.array([0, TIME_END_MS, -(2**63), None], pa.int64())})
    assert with_timestamps(times)["time"].is_null().to_pylist() == [False, True, True, True]
    lists = pa.array([None, [], [{"store_time_ms": 1}]], pa.list_(pa.struct([("store_time_ms", pa.int64())])))
    found = with_timestamps(pa.record_batch({"copies": lists}))["copies"].to_pylist()
    assert (found[:2], found[2][0]["store_time"].timestamp()) == ([None, []], 0.001)
