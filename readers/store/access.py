"""Whether this user may read a store: a file that may not be read would be taken for a missing one.

Every command opens stores with `open_store`, which tests what verdicts depend on before it returns: the root, the
files of the commit log, the settings and cursors, the queues of the check, the index. Of other topics the directories
are tested when they are listed, and the files when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rmqtx.readers.storage.places import is_uri, joined
from rmqtx.readers.storage.refused import require_readable
from rmqtx.readers.store.paths import PATHS

#: Directories of queues: of these, only the topics of the check are tested to the last file.
_QUEUES = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
#: No verdict depends on these.
_NOT_READ = {"dledger-SELF", "compaction", "kvStore", "tiered_index_file"}
_NAMES = sorted({path.strip().split("/")[0] for one in PATHS for path in one.path.split(",")} - _NOT_READ)
_PRIVATE = ("users", "acls")  # of config/: databases with passwords


def require_access(root: str, log_directories: Iterable[str], check_topics: Iterable[str]) -> None:
    """Require that this user may read what verdicts depend on; nothing is tested in a remote store.

    Raises: UnreadableFile, which names the first file or directory that the operating system refuses.
    """
    for directory in log_directories:
        if not is_uri(directory):
            require_readable(directory, 1)
    if is_uri(root):
        return
    for name in _NAMES:
        place = joined(root, name)
        if name not in _QUEUES:
            require_readable(place, 3, leaves_out=_PRIVATE)
            continue
        require_readable(place)
        if Path(place, "CURRENT").exists():  # a database
            require_readable(place, 1)
        for topic in check_topics:
            require_readable(joined(place, topic), 2)
