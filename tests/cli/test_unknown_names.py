"""A topic or group that does not occur is said, with what is near: an empty list must not hide a slip."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("decode half STORE --topic paymnts", "--topic paymnts: no row has it - did you mean payments?"),
        ("decode half STORE --group shpo", "--group shpo: no row has it - did you mean shop?"),
        ("decode cursors STORE --topic ordes", "--topic ordes: no row has it - did you mean orders?"),
        ("decode commitlog STORE --topic odrers", "--topic odrers: no queue here has this topic - did you mean or"),
        ("decode consumequeue STORE --topic odrers", "no queue here has this topic - did you mean orders?"),
        ("search STORE --topic zzz", "--topic zzz: no queue here has this topic - there are: "),
    ],
)
def test_a_name_that_does_not_occur(command: str, told: str, rmqtx: Run, common: Path) -> None:
    result = rmqtx(*command.replace("STORE", str(common)).split())
    assert (result.status, result.out) == (DONE, "")
    assert told in result.err


@pytest.mark.parametrize(
    "command",
    [
        "decode half STORE --topic orders --limit 1", "decode half STORE --topic orders --where queue_offset>100000",
        "search STORE --topic orders --key nothing", "decode consumequeue STORE --topic orders --from 1000",
    ],
)
def test_a_name_that_occurs_is_never_complained_of(command: str, rmqtx: Run, common: Path) -> None:
    result = rmqtx(*command.replace("STORE", str(common)).split())
    assert (result.status, "--topic" in result.err) == (DONE, False), result.err
