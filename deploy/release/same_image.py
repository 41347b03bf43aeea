#!/usr/bin/env python3
"""Write an image of `docker load` again, without what buildah draws by chance: name and number of the build container.

    python3 deploy/release/same_image.py FILE

FILE keeps its layers and its tag. Its configuration loses these two, and has a digest that depends on the rest alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

_BY_CHANCE = ("container", "container_config")


def write_again(file: Path) -> None:
    """Replace the file."""
    fresh = file.with_suffix(".new")
    with tarfile.open(file) as read, tarfile.open(fresh, "w", format=tarfile.USTAR_FORMAT) as written:

        def content(name: str) -> bytes:
            found = read.extractfile(name)
            assert found is not None
            return found.read()

        def add(name: str, data: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            written.addfile(member, io.BytesIO(data))

        [image] = json.loads(content("manifest.json"))
        configuration = json.loads(content(image["Config"]))
        for name in _BY_CHANCE:
            configuration.pop(name, None)
        configuration["config"].pop("Hostname", None)
        data = json.dumps(configuration, sort_keys=True, separators=(",", ":")).encode()
        image["Config"] = f"{hashlib.sha256(data).hexdigest()}.json"
        add(image["Config"], data)
        for layer in dict.fromkeys(image["Layers"]):
            add(layer, content(layer))
        add("manifest.json", json.dumps([image], sort_keys=True, separators=(",", ":")).encode())
    fresh.replace(file)


if __name__ == "__main__":
    write_again(Path(sys.argv[1]))
