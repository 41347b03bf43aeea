"""Where results are not written: into a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.storage.places import is_uri

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store


def refuse_inside(output: str | os.PathLike[str] | None, stores: Sequence[Store]) -> None:
    """Refuse an output file inside a store: one unknown file in commitlog/ prevents the start of the broker.

    Raises: BadRequest.
    """
    if output is None or str(output) == "-":
        return
    target = os.path.realpath(output)
    for store in stores:
        for directory in (store.root, *store.commit_log_directories):
            if not is_uri(directory):
                real = os.path.realpath(directory)
                if target == real or target.startswith(real.rstrip(os.sep) + os.sep):
                    raise BadRequest(f"{output} lies inside the store {store.root}", advice="write it somewhere else")
