"""An audit that follows is ended while it reads a log in several parts: the next run goes on between two records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from rmqtx.readers.jobs.workers import Progress, Workers
from rmqtx.readers.log.splits import Split
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.evidence.witness_scan import SplitWitnesses
from rmqtx.verdicts.follow.follower import Follower
from rmqtx.verdicts.follow.split_reader import SplitReader
from tests.forge import damage
from tests.forge.stores import copy_of, settings_of
from tests.representatives import rest_is_slow
from tests.verdicts.following import Followed

STEP_BYTES = 3_000


class Ended(SplitReader):
    """A reader of small parts that ends after some of them, as Ctrl-C does."""

    def read(self, splits: Iterable[Split]) -> Iterator[tuple[Split, SplitWitnesses]]:
        for split, found in super().read(splits):
            yield split, found
            self.total_bytes -= 1
            if not self.total_bytes:
                raise KeyboardInterrupt


@pytest.mark.parametrize("damaged_bytes", [0, 500, 9_000])
@pytest.mark.parametrize("parts", rest_is_slow([2, 1, 6], quick=1))
@pytest.mark.parametrize(
    "name", rest_is_slow(["killed-5.3.3", "common-4.3.0", "common-5.3.3", "dledger-5.1.4", "rocksdb-5.5.0"], quick=1)
)
def test_the_next_run_goes_on(name: str, parts: int, damaged_bytes: int, tmp_path: Path) -> None:
    def reader(_total_bytes: int, _progress: Progress | None) -> SplitReader:
        return Ended(Workers(1), 1, STEP_BYTES, total_bytes=parts)

    root = copy_of(name, tmp_path / "copy")
    damage.write_bytes(Path(open_store(root).commit_log[-1].file), 4_000, b"\xff" * damaged_bytes)
    followed = Followed([root], tmp_path / "checkpoint", settings_of(name))
    for _ in range(3):
        step = Follower(followed.database, make_reader=reader).step(followed.stores(), followed.settings)
        with pytest.raises(KeyboardInterrupt):
            list(step.batches)
        followed.restart()
    assert followed.assert_current().num_rows > 5
