"""A run that kills itself at one of the moments at which something was, or is about to be, written.

`main(NUMBER, STORE, TABLE, CHECKPOINT)`, in a process of its own, dies of SIGKILL at the moment of that number; the
process ends with status 0 if there are fewer.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from rmqtx.readers.storage.temporary import temporary_files_in
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.growing import parquet_table
from rmqtx.verdicts.growing.grow import grow
from rmqtx.verdicts.growing.parquet_table import PartWriter
from rmqtx.verdicts.growing.tables import TableName, opened_table, table_name

VERSION = "5.3.3"


def by_version(store: Store) -> BrokerSettings:
    return broker_settings(store, version=VERSION)


class Moments:
    """Counts moments, and ends the process at one of them as `kill -9` does."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        """Before and after each call of a function."""
        function: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self()
            result = function(*arguments, **named)
            self()
            return result

        setattr(owner, name, counted)

    def around_transactions(self) -> None:
        """Before and after each COMMIT of the checkpoint."""
        transaction = FollowDatabase.transaction
        moment = self

        @contextmanager
        def counted(database: FollowDatabase) -> Iterator[None]:
            with transaction(database):
                yield
                moment()
            moment()

        FollowDatabase.transaction = counted  # type: ignore[method-assign, assignment]


def main(number: str, store: str, table: str, checkpoint: str) -> None:
    moment = Moments(int(number))
    moment.around_transactions()
    moment.around(PartWriter, "_flush")
    moment.around(parquet_table, "write_manifest")
    stores = [open_store(store)]
    with opened_table(table_name(table)) as opened:
        moment.around(type(opened), "apply")
        database = FollowDatabase(checkpoint, stores)
        grow(opened, database, stores, by_version)
        database.close()


@functools.cache
def _processes() -> ForkServerContext:
    """Processes that begin with what each run loads, but for PyIceberg, which reads the environment as it is loaded."""
    context = multiprocessing.get_context("forkserver")
    loaded = [__name__, "pyarrow.parquet", "pyarrow.dataset", "deltalake", "sqlalchemy", "pydantic"]
    context.set_forkserver_preload(loaded)
    return context


def _begin(environment: Mapping[str, str], *arguments: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    main(*arguments)


def run(number: int, root: Path, table: TableName, checkpoint: Path) -> bool:
    """One run in a process of its own; gives whether it was killed."""
    words = (str(number), str(root), str(table), str(checkpoint))
    process = _processes().Process(target=_begin, args=(dict(os.environ), *words))
    with temporary_files_in("/tmp"):  # beside a Spark session they are at a path too long for the socket of the server
        process.start()
    process.join()
    status = process.exitcode
    process.close()
    assert status in (0, -signal.SIGKILL), f"the run ended with {status}"
    return status != 0
