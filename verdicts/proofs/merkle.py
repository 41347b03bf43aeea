"""Merkle trees of SHA-256, as in RFC 6962: a leaf is hashed after a zero byte, a pair of nodes after a one.

Source: RFC 6962, 2.1; docs/proofs.md#merkle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_LEAF, _NODE = b"\0", b"\1"


def leaf(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    digest = hashlib.sha256(_LEAF)
    digest.update(data)
    return digest.digest()


def root(leaves: Iterable[bytes]) -> bytes:
    """Return the root of a tree from the hashes of its leaves; that of no leaves is the hash of no bytes.

    Memory grows with the depth of the tree, not with its leaves.
    """
    #: Roots of whole subtrees from left to right, each with the number of its levels; numbers descend.
    left: list[tuple[int, bytes]] = []
    for one in leaves:
        level, node = 0, one
        while left and left[-1][0] == level:
            node = _joined(left.pop()[1], node)
            level += 1
        left.append((level, node))
    if not left:
        return hashlib.sha256().digest()
    _, node = left.pop()
    while left:
        node = _joined(left.pop()[1], node)
    return node


def _joined(one: bytes, other: bytes) -> bytes:
    return hashlib.sha256(_NODE + one + other).digest()
