"""A copy of a tree: mutants are written there, never into the tree that they are drawn from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def files_of(root: Path) -> list[Path]:
    """The files of a tree that are in it or could be added, as git lists them; links as they are."""
    listing = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.check_output(listing, cwd=root, text=True).splitlines()
    return [Path(name) for name in names if (root / name).is_symlink() or (root / name).is_file()]


def copied(root: Path, to: Path) -> None:
    """Make `to` a copy of a tree. A link into the tree is made relative, so that it leads into the copy."""
    wanted = files_of(root)
    keep = {str(path) for path in wanted}
    if to.exists():
        for place, _, names in os.walk(to):
            for name in names:
                file = Path(place, name)
                if str(file.relative_to(to)) not in keep:
                    file.unlink()
    for path in wanted:
        source, target = root / path, to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.unlink(missing_ok=True)
            target.symlink_to(source.readlink())
        elif not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
