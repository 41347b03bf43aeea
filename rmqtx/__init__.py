"""rmqtx as a library: what its commands answer, as tables and typed values.

    import rmqtx

    stores = rmqtx.open("/data/rocketmq/store")
    for transaction in stores.pending():
        print(transaction.transaction_id, transaction.state, transaction.advice)

    with rmqtx.connect("10.0.0.1:9876") as brokers:
        duckdb.from_arrow(brokers.pending()).aggregate("producer_group, count(*)")

Nothing is printed, and nothing is read before it is asked for; `import rmqtx` loads neither Arrow nor numpy.
`rmqtx.spark` is the interface for Spark. In a checkout the packages of the library are links to folders beside this
one: `rmqtx/readers` is `readers/`; they have no other name than `rmqtx.readers`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from rmqtx.api.acting import Act, ActKind, ActOutcome, Applied, NotPlanned, Plan, Receipt, Step
    from rmqtx.api.brokers import Brokers, connect
    from rmqtx.api.results import Rows
    from rmqtx.api.rows import Diagnosis, Finding, Half, Op, Record, SimulatedCheck, TraceLine, Transaction
    from rmqtx.api.stores import Stores
    from rmqtx.api.stores import open_stores as open  # noqa: A004 -- rmqtx.open, as in gzip.open
    from rmqtx.readers.model.errors import (
        BadRequest,
        EvidenceMissing,
        FileChanged,
        FormatError,
        MissingLibrary,
        NoSuchTransaction,
        NotApproved,
        NotAStore,
        RmqtxError,
        SourceError,
        StalePlan,
        StoreInUse,
        UnreadableFile,
        UnsafeStore,
        UnwritableFile,
    )
    from rmqtx.remoting.protocol.connection_settings import Credentials, RemotingSettings
    from rmqtx.remoting.protocol.errors import NoAnswer, Refused, RemotingError, Unreachable
    from rmqtx.verdicts.model.verdict_words import Advice, State

    __version__: str

__all__ = [
    "Act",
    "ActKind",
    "ActOutcome",
    "Advice",
    "Applied",
    "BadRequest",
    "Brokers",
    "Credentials",
    "Diagnosis",
    "EvidenceMissing",
    "FileChanged",
    "Finding",
    "FormatError",
    "Half",
    "MissingLibrary",
    "NoAnswer",
    "NoSuchTransaction",
    "NotAStore",
    "NotApproved",
    "NotPlanned",
    "Op",
    "Plan",
    "Receipt",
    "Record",
    "Refused",
    "RemotingError",
    "RemotingSettings",
    "RmqtxError",
    "Rows",
    "SimulatedCheck",
    "SourceError",
    "StalePlan",
    "State",
    "Step",
    "StoreInUse",
    "Stores",
    "TraceLine",
    "Transaction",
    "Unreachable",
    "UnreadableFile",
    "UnsafeStore",
    "UnwritableFile",
    "__version__",
    "connect",
    "open",
]

_API = "rmqtx.api"
_ERRORS, _REMOTING_ERRORS = "rmqtx.readers.model.errors", "rmqtx.remoting.protocol.errors"
_HOMES = {
    **dict.fromkeys(
        ("Act", "ActKind", "ActOutcome", "Applied", "NotPlanned", "Plan", "Receipt", "Step"), f"{_API}.acting"
    ),
    **dict.fromkeys(("Brokers", "connect"), f"{_API}.brokers"),
    **dict.fromkeys(
        ("Diagnosis", "Finding", "Half", "Op", "Record", "SimulatedCheck", "TraceLine", "Transaction"), f"{_API}.rows"
    ),
    **dict.fromkeys(("NoAnswer", "Refused", "RemotingError", "Unreachable"), _REMOTING_ERRORS),
    **dict.fromkeys(("Credentials", "RemotingSettings"), "rmqtx.remoting.protocol.connection_settings"),
    "Rows": f"{_API}.results", "Stores": f"{_API}.stores", "open": f"{_API}.stores",
    "Advice": "rmqtx.verdicts.model.verdict_words", "State": "rmqtx.verdicts.model.verdict_words",
}


#: Names that go with the next minor release, each with its replacement.
_DEPRECATED: dict[str, str] = {}

if not TYPE_CHECKING:  # or every name would have a type

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("rmqtx")
        if name in _DEPRECATED:
            warn(f"rmqtx.{name} is deprecated, use rmqtx.{_DEPRECATED[name]}", DeprecationWarning, stacklevel=2)
            return __getattr__(_DEPRECATED[name])
        if name not in __all__:
            raise AttributeError(f"module 'rmqtx' has no attribute {name!r}")
        return getattr(import_module(_HOMES.get(name, _ERRORS)), "open_stores" if name == "open" else name)


def __dir__() -> list[str]:
    return sorted(__all__)
