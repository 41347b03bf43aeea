"""An audit that follows copies on an object store, to which somebody adds."""

from __future__ import annotations

from pathlib import Path

from tests.forge.stores import unpacked
from tests.s3.conftest import Run
from tests.s3.server import S3Server
from tests.spark.growing import Growing


def test_copies_that_are_brought_up_to_date(s3: S3Server, rmqtx: Run, tmp_path: Path) -> None:
    growing = Growing(unpacked("multipath-5.1.4"), tmp_path / "copy")
    told: dict[str, str] = {}
    for moment in growing.moments(3, 2):
        growing.write_to(moment)
        uri = s3.upload(growing.root, "growing/store")
        choice = ("--format", "csv", "--fields", "transaction_id,state,flags")
        rows = rmqtx("follow", uri, "--until-idle", "--checkpoint", tmp_path / "checkpoint", *choice)
        assert rows.status in (0, 3), rows.err
        told.update((line.partition(",")[0], line) for line in rows.out.splitlines())
        assert sorted(told.values()) == sorted(rmqtx("audit", uri, *choice).out.splitlines())
    assert len(told) > 3
