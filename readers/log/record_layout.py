"""The record of the commit log and the blank record, as declared data, with their magic codes and flag bits."""

from __future__ import annotations

from rmqtx.readers.model.layout import Field, Layout, VariablePart

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

RECORD = Layout(
    "record",
    "Record of the commit log (hosts of 4 address bytes)",
    (
        Field("length_bytes", "i", "length of the whole record, with this field", "byte"),
        Field(
            "magic", "i",
            "DAA320A7: version 1; DAA320AB: version 2 (5.1.0+); CBD43194: blank record up to the file's end"
        ),
        Field("body_crc", "i", "CRC-32 of the stored body, top bit cleared; 0 for an empty one"),
        Field("queue_id", "i", "queue number"),
        Field("flag", "i", "user flag, opaque to the broker"),
        Field("queue_offset", "q", "number in its consume queue; 0 for prepared and ROLLBACK records"),
        Field("commit_log_offset", "q", "commit-log offset of this record", "byte"),
        Field("sys_flag", "i", "bits: 1 compressed, 0xC transaction type, 0x10/0x20 hosts are IPv6, 0x700 compression"),
        Field("born_time_ms", "q", "producer clock when the message was created", "ms"),
        Field("born_address", "4s", "producer address; 16 bytes when sys_flag has 0x10 (4.6.0+)"),
        Field("born_port", "i", "producer port"),
        Field("store_time_ms", "q", "broker clock at append; 12 bytes later if the born host is IPv6", "ms"),
        Field("store_address", "4s", "broker address; 16 bytes when sys_flag has 0x20 (4.6.0+)"),
        Field("store_port", "i", "broker port"),
        Field("reconsume_times", "i", "failed deliveries before this copy"),
        Field(
            "prepared_transaction_offset", "q", "COMMIT record: commit-log offset of the half copy that it commits",
            "byte"
        ),
        Field("body_length_bytes", "i", "length of the stored body", "byte"),
    ),
    88,
    "store/CommitLog.java (AppendMessageCallback), docs/formats/record.md#record",
    (
        VariablePart("body", "body_length_bytes", "as stored, may be compressed"),
        VariablePart("topic_length_bytes", "1, version 2: 2", "length of the topic"),
        VariablePart("topic", "topic_length_bytes", "UTF-8"),
        VariablePart("properties_length_bytes", "2", "length of the properties"),
        VariablePart("properties", "properties_length_bytes", "name 0x01 value 0x02, repeated"),
    ),
)
BLANK = Layout(
    "blank",
    "Blank record at the end of a full commit-log file",
    (Field("length_bytes", "i", "bytes up to the end of the file", "byte"), Field("magic", "i", "CBD43194")),
    8,
    "store/CommitLog.java doAppend END_OF_FILE, docs/formats/record.md#blank",
)

RECORD_BYTES_MIN = RECORD.size_bytes + 1 + 2
AT = RECORD.offsets
IPV6_EXTRA_BYTES = 12
BORN_V6, STORE_V6, COMPRESSED = 0x10, 0x20, 0x1
TRANSACTION_MASK, PREPARED, COMMIT, ROLLBACK = 0xC, 0x4, 0x8, 0xC

#: A property is `name` NAME_END `value` VALUE_END.
NAME_END, VALUE_END = 1, 2

#: Topic of the fillers that `rmqtx salvage` writes in place of lost records, and the property of fillers that also have
#: a lost record's number in its queue: brokers skip both, and rmqtx counts them as the damage that they stand for.
FILLER = "RMQTX_FILLER"
FILLER_MARK = FILLER.encode()


def signed(number: int) -> int:
    """Return an unsigned 32-bit number, such as a magic code, as the signed number in a record's field."""
    return int.from_bytes(number.to_bytes(4, "big"), "big", signed=True)
