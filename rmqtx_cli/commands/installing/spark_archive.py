"""`rmqtx spark-archive`: pack the packages that Spark's executors need."""

from __future__ import annotations

import shutil
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.spark_tasks.session.environment_archive import try_archive, write_archive
from rmqtx_cli.commands.declared.installation import SparkArchiveCommand
from rmqtx_cli.output.streams import written_whole
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.text import count, size


def run(options: SparkArchiveCommand) -> int:
    """Run the command; return its exit status."""
    if not options.output.name.endswith((".tar.gz", ".tgz")):
        raise BadRequest(f"-o {options.output}: Spark unpacks an archive whose name ends in .tar.gz or .tgz")
    with shown("packing", options.voice), RunFolder() as folder:
        archive = Path(folder) / "env.tar.gz"
        with archive.open("wb") as stream:
            packed = write_archive(stream)
        try_archive(archive, Path(folder) / "unpacked")
        with archive.open("rb") as tried, written_whole(options.output) as stream:
            shutil.copyfileobj(tried, stream)
    versions = ", ".join(f"{name} {version}" for name, version in packed.versions.items())
    options.voice.note(
        f"{options.output}: {size(options.output.stat().st_size)}, {count(packed.files_count, 'file')}, "
        f"for Python {packed.python}: "
        f"{versions}"
    )
    options.voice.note(
        "next: rmqtx doctor --master spark://HOST:7077 "
        f"--conf spark.archives={options.output}#env --conf spark.pyspark.python=./env/bin/python"
    )
    return 0
