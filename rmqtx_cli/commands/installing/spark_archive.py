"""`rmqtx spark-archive`: pack the packages that Spark's executors need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import VoiceOptions

NAME = "spark-archive"
EXAMPLES = (
    Example("rmqtx spark-archive -o env.tar.gz", "the packages of this environment"),
    Example(
        "rmqtx audit STORE --master spark://HOST:7077 --conf spark.archives=env.tar.gz#env "
        "--conf spark.pyspark.python=./env/bin/python -o verdicts/",
        "use it on a cluster whose executors have only Python",
    ),
)

ArchiveOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Write the archive to FILE, a .tar.gz")
]


@with_option_groups
def command(output: ArchiveOption, *, voice: VoiceOptions) -> int:
    """Pack pyarrow, numpy, pandas and what makes scans faster, for executors of Spark that have only Python.

    The archive has the packages of this environment and a script bin/python, which runs a Python of the executor with
    them. It suits executors with the system, the processor and the minor version of Python of this machine. rmqtx
    itself is not in it: each session sends its own.
    """
    import shutil

    from rmqtx.readers.model.errors import BadRequest
    from rmqtx.readers.storage.temporary import RunFolder
    from rmqtx.spark_tasks.session.environment_archive import try_archive, write_archive
    from rmqtx_cli.output.streams import written_whole
    from rmqtx_cli.words.progress import shown
    from rmqtx_cli.words.text import count, size

    if not output.name.endswith((".tar.gz", ".tgz")):
        raise BadRequest(f"-o {output}: Spark unpacks an archive whose name ends in .tar.gz or .tgz")
    with shown("packing", voice), RunFolder() as folder:
        archive = Path(folder) / "env.tar.gz"
        with archive.open("wb") as stream:
            packed = write_archive(stream)
        try_archive(archive, Path(folder) / "unpacked")
        with archive.open("rb") as tried, written_whole(output) as stream:
            shutil.copyfileobj(tried, stream)
    versions = ", ".join(f"{name} {version}" for name, version in packed.versions.items())
    voice.note(
        f"{output}: {size(output.stat().st_size)}, {count(packed.files_count, 'file')}, for Python {packed.python}: "
        f"{versions}"
    )
    voice.note(
        "next: rmqtx doctor --master spark://HOST:7077 "
        f"--conf spark.archives={output}#env --conf spark.pyspark.python=./env/bin/python"
    )
    return 0
