"""The shortest record there can be, with a flag that claims more than it has room for."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import BORN_V6, MAGIC_V1, RECORD, RECORD_BYTES_MIN, STORE_V6
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.storage.segments import Segment


@pytest.mark.parametrize("flag", [0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
def test_a_record_of_91_bytes_at_the_end_of_the_file_is_judged_by_what_it_has_room_for(
    tmp_path: Path, flag: int
) -> None:
    head = RECORD.pack(length_bytes=RECORD_BYTES_MIN, magic=MAGIC_V1 - (1 << 32), sys_flag=flag)
    file = tmp_path / f"{0:020d}"
    file.write_bytes(head + bytes(RECORD_BYTES_MIN - len(head)))
    scan = SegmentScan(Segment(str(file), 0, RECORD_BYTES_MIN))
    assert [len(block) for block in scan] == []  # a record without a topic is none, whatever else it claims
    assert scan.decoded_bytes + sum(span.length_bytes for span in scan.spans) == RECORD_BYTES_MIN
