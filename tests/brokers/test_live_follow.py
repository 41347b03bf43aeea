"""An audit that follows a broker from its first record on, while it writes, checks, is killed, or stops."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store
from tests.brokers import make, maven, recipes
from tests.brokers.script import Script, Stop
from tests.brokers.test_live import SEED, VERSIONS
from tests.verdicts.following import Followed

WHY_NOT = maven.why_not()
#: A clean stop is the lesser test: it is made where versions are named (`make test-brokers`).
STOPS: list[Stop] = ["clean", "kill"] if "RMQTX_BROKER_VERSIONS" in os.environ else ["kill"]

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


class Watching(threading.Thread):
    """Follows the store that appears below a directory until it is told to stop."""

    def __init__(self, directory: Path, checkpoint: Path, version: str) -> None:
        super().__init__()
        self._directory, self._checkpoint, self._version = directory, checkpoint, version
        self._is_over = threading.Event()
        self.steps_in_use = self.steps_with_rows = self.failures_in_a_row_max = 0
        self.error: BaseException | None = None

    def settings(self, store: Store) -> BrokerSettings:
        return broker_settings(store, version=self._version)

    def run(self) -> None:
        try:
            self._follow()
        except BaseException as error:
            self.error = error

    def _roots(self) -> list[Path]:
        try:
            return [path.parent for path in self._directory.rglob("commitlog") if any(path.iterdir())]
        except FileNotFoundError:  # the directory is cleared before the broker is started
            return []

    def _follow(self) -> None:
        while not (roots := self._roots()):
            if self._is_over.wait(0.2):
                return
        followed, failures = Followed(roots, self._checkpoint, self.settings), 0
        while True:
            is_over = self._is_over.is_set()
            try:
                stores = followed.stores()
                step = followed.step(stores=stores)
            except SourceError:  # a file that the broker has just replaced
                failures += 1
                self.failures_in_a_row_max = max(self.failures_in_a_row_max, failures)
                if failures > 3:
                    raise
                continue
            failures = 0
            self.steps_in_use += stores[0].in_use
            self.steps_with_rows += bool(step.new_count or step.changed_count)
            followed.restart()
            if is_over:
                break
            time.sleep(0.3)
        self.rows = followed.assert_current().to_pylist()
        followed.database.close()

    def stop(self) -> None:
        self._is_over.set()
        self.join()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_told_while_the_broker_ran_is_the_audit(version: str, stop: Stop, tmp_path: Path) -> None:
    out = tmp_path / "broker"
    out.mkdir()
    watching = Watching(out, tmp_path / "checkpoint", version)
    watching.start()
    try:
        live = make.live(Script(version, SEED, recipes.halved(recipes.common(version)), stop=stop), out)
    finally:
        watching.stop()
    print(f"{version}, {stop}: {watching.steps_in_use} steps while the broker ran, "
          f"{watching.steps_with_rows} of them told something")
    assert watching.steps_in_use > 10
    assert watching.steps_with_rows > 5
    assert len(watching.rows) >= len(live.rows)
