"""Makes the class-data archive: `python -m checker.engine.class_archive_builder`.

It runs a small job as the checks have them, so that the classes they need are loaded, and lets the
JVM write the archive at its end.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from checker.engine.class_archive import ClassArchive, archive_for, publish
from checker.engine.java import find_java
from checker.engine.spark_session import Jvm, JvmSettings, open_session, warm_up
from checker.formats.errors import CheckerError

_LOWEST_PRIORITY = 19
# Writing the archive takes the JVM some seconds on a quiet machine, and we yield to everyone.
_WRITING_TIMEOUT_S = 900.0


def build_archive() -> bool:
    """Makes the archive for the Java that `find_java` finds; true if it exists afterwards.

    Raises:
        CheckerError: there is no Java, or Spark does not start on it.
        OSError: the cache folder cannot be written.
    """
    java = find_java()
    archive = archive_for(java)
    settings = JvmSettings(java=java, master="local[1]", driver_memory="2g", small=True)
    return publish(archive, lambda path: _write(archive, settings, path))


def _write(archive: ClassArchive, settings: JvmSettings, path: Path) -> bool:
    jvm = Jvm(settings, log_file=None, options=archive.writing_options(path))
    try:
        session = open_session(jvm, "floodmark-class-archive", cores=1)
        warm_up(session)
        session.stop()
    finally:
        ended_well = jvm.close(_WRITING_TIMEOUT_S)
    return ended_well


def main() -> int:
    """Builds the archive at the lowest priority; 0 if it exists afterwards."""
    with contextlib.suppress(OSError):
        os.nice(_LOWEST_PRIORITY)
    try:
        return 0 if build_archive() else 1
    except (CheckerError, OSError):
        return 1


if __name__ == "__main__":
    sys.exit(main())
