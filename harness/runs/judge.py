"""The judging of run folders, their pages, and the result in a few lines for the terminal.

Small runs (below `IN_PROCESS_BYTES`) are judged in this process, which takes less time than
starting another. Larger ones, and many at once, are judged on Spark, or if that is missing (a
sentence on stderr says why) by processes of this machine with the same checks. Checker, pages and
Spark start slowly, so they are imported late, or by `get_ready` while a storm goes on."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from checker.formats.errors import CheckerError, SparkMissing
from checker.formats.verdict import RunResult, Verdict
from harness.formats.finding import DRAWN, EXPLANATION, FOLDER, REAL, SCHEDULE
from harness.runs.program import command_line, program
from node.formats.errors import FloodmarkError, UsageError
from node.formats.files import make_folder, write_whole
from node.formats.host_errors import reason, refused
from node.formats.json_input import read_bytes
from node.formats.reading import hole_in
from node.formats.removal import try_to_remove
from node.formats.run_folder_entries import foreign_entry

if TYPE_CHECKING:
    from checker.engine.spark_session import SessionInBackground
    from nemesis.formats.schedule import Schedule

APP_NAME: Final = "floodmark"
SPARK_PATIENCE_S: Final = 180.0
SMALL_HEAP: Final = "2g"
LARGE_HEAP: Final = "3g"
IN_PROCESS_VARIABLE: Final = "FLOODMARK_IN_PROCESS_BYTES"
"""The environment variable that moves the bound; 0: every run is judged on Spark."""
_MOVED = os.environ.get(IN_PROCESS_VARIABLE, "")
IN_PROCESS_BYTES = int(_MOVED) if _MOVED.isdecimal() else 16 << 20
"""Up to so many bytes of evidence are judged in this process (docs/speed.md has the crossing)."""
MANY_RUNS: Final = 64
"""So many runs, however small, are worth the start of other processes."""
_LARGE_BYTES: Final = 256 << 20
_BYTES_PER_SEND: Final = 2_500
_MOST_SENDS_S: Final = 500.0
"""What a storm leaves behind of one send, and how many of them a producer makes that does not wait
between them: enough to know whether Spark will be needed."""

Tell = Callable[[str], None]


def require_spark() -> None:
    """Raise SparkMissing, which names the extra to install, if PySpark or pandas is missing."""
    missing = [name for name in ("pyspark", "pandas") if find_spec(name) is None]
    if missing:
        raise SparkMissing(
            f"Spark needs {' and '.join(missing)}: pip install '.[spark]' in a clone of floodmark."
        )


class SparkSoon:
    """A judge of large runs on Spark; its session starts in the background."""

    def __init__(self, log_file: Path | None = None, master: str | None = None) -> None:
        """Prepare a session, which `begin` starts, on the cluster of this URL (None: this machine).
        `log_file` gets Spark's output."""
        self._log_file = log_file
        self._master = master
        self._session: SessionInBackground | None = None

    @property
    def elsewhere(self) -> bool:
        """Return whether the user asked for a Spark cluster: this machine judges nothing."""
        return self._master is not None

    def begin(self, *, large: bool = False) -> None:
        """Start the session, `large` for millions of operations. Raises SparkMissing."""
        require_spark()
        from checker.engine.spark_session import SessionInBackground

        if self._session is None:
            self._session = SessionInBackground(
                APP_NAME,
                master=self._master,
                driver_memory=LARGE_HEAP if large else SMALL_HEAP,
                small=not large,
                log_file=self._log_file,
            )

    def ready(self) -> None:
        """Wait for the session. Raises SparkMissing or CheckerError when there is none."""
        self.begin()
        assert self._session is not None
        self._session.get(SPARK_PATIENCE_S)

    def check(
        self, folders: Sequence[Path], *, out: Path | None = None, again: bool = True
    ) -> list[RunResult]:
        """Judge run folders and return their results, written to `out` (None: the run folders).
        Unless `again`, unchanged runs keep theirs. Raises CheckerError without Spark."""
        from checker.ingest.ingest import work_bytes

        self.begin(large=work_bytes(folders) > _LARGE_BYTES)
        from checker.engine.spark_job import check

        assert self._session is not None
        session = self._session.get(SPARK_PATIENCE_S)
        return check(folders, session=session, out=out, again=again, small_bytes=IN_PROCESS_BYTES)


def is_much(folders: Sequence[Path]) -> bool:
    """Return whether these run folders are too much work for this process alone."""
    from checker.ingest.ingest import work_bytes

    return len(folders) > MANY_RUNS or work_bytes(folders) > IN_PROCESS_BYTES


def judge(
    folders: Sequence[Path],
    spark: SparkSoon | None,
    tell: Tell,
    *,
    out: Path | None = None,
    again: bool = True,
) -> list[RunResult]:
    """Judge run folders; write `results.json` of each to `out` (None: the run folders), and
    `story.json` if there is a story. Unless `again`, unchanged runs keep theirs. If `spark` is
    None, this process judges them. `tell` is called with sentences for a person. Raises
    FloodmarkError if results cannot be written, or if the requested Spark cluster is missing."""
    from checker.engine.local import refusal
    from checker.story.story import write_story

    refused = {folder: refusal(folder) for folder in folders}
    plain = [folder for folder in folders if refused[folder] is None]
    try:
        judged = iter(_judged(plain, spark, tell, out, again) if plain else ())
    except (MemoryError, ImportError) as error:
        # A library whose code finds no room in memory is an ImportError.
        if isinstance(error, ImportError) and "map segment" not in str(error):
            raise
        later = command_line("check", *folders)
        raise FloodmarkError(
            f"there is too little memory to judge ({error}); the evidence is complete: raise the "
            f"limit (ulimit -v) and judge it with {later}"
        ) from None
    results = [refused[folder] or next(judged) for folder in folders]
    for folder, result in zip(folders, results, strict=True):
        if out is not None:
            break
        if refused[folder] is not None:
            continue
        try:
            write_story(folder, result)
        except (OSError, LookupError, TypeError) as error:
            tell(f"The story of {folder} could not be written: {reason(error)}")
    return results


def _judged(
    folders: Sequence[Path], spark: SparkSoon | None, tell: Tell, out: Path | None, again: bool
) -> list[RunResult]:
    """Much on Spark, without it by processes of this machine; little in this process."""
    from checker.engine.local import check_runs

    much = is_much(folders)
    if spark is not None and (spark.elsewhere or much):
        try:
            return spark.check(folders, out=out, again=again)
        except CheckerError as error:
            if spark.elsewhere:
                raise
            tell(f"{error} The run is judged without Spark instead.")
    if much and threading.current_thread() is threading.main_thread():
        from checker.engine.stages import check_on_processes

        try:
            return check_on_processes(folders, out=out, again=again, small_bytes=IN_PROCESS_BYTES)
        except CheckerError as error:
            tell(f"{error} The run is judged in this process instead.")
    try:
        return check_runs(folders, out=out, again=again)
    except OSError as error:
        raise FloodmarkError(f"the results could not be written: {refused(error)}") from None


def get_ready(spark: SparkSoon | None, schedule: Schedule) -> None:
    """Import what verdict and page need, while a storm goes on; start Spark for large runs."""
    work = schedule.workload
    sends_s = work.clients * (work.rate or _MOST_SENDS_S)
    expected = sends_s * work.duration_ms / 1000 * _BYTES_PER_SEND
    if spark is not None and (spark.elsewhere or expected > IN_PROCESS_BYTES):
        # Without Spark the run is judged by processes, which says so in its place.
        with contextlib.suppress(SparkMissing):
            spark.begin()
    threading.Thread(target=_load, name="load-checks", daemon=True).start()


def _load() -> None:
    """Import the checks and the pages. An import that fails will fail again at its use."""
    with contextlib.suppress(Exception):
        import pyarrow as pa

        import reports  # noqa: F401
        from checker.checks.registry import Scope, checks
        from checker.engine import local  # noqa: F401

        checks(Scope.PARTITION)
        pa.scalar(0)  # upon which pyarrow imports pandas


def bring_finding(source: Path | None, run: Path, tell: Tell) -> None:
    """Copy the files of a finding into `finding/` of the run folder that replays it. `source` is
    the path that the run replays; if it is not the folder of a finding, nothing is copied."""
    if source is None or not (source / EXPLANATION).is_file():
        return
    target = run / FOLDER
    try:
        make_folder(target, run)
        for name in (EXPLANATION, SCHEDULE, DRAWN, REAL):
            if (source / name).is_file():
                write_whole(target / name, read_bytes(source / name), run)
    except (OSError, FloodmarkError) as error:
        tell(f"What the search said of {source} could not be copied: {reason(error)}")


def build_page(folder: Path, tell: Tell) -> Path | None:
    """Write `report.html` and return its path; None if that failed, which `tell` says."""
    from reports import build

    try:
        return build(folder, program=program())
    except Exception as error:
        tell(f"The page could not be built: {error}")
        return None


def summarise(folder: Path, result: RunResult) -> str:
    """Return a run in a few lines; if the page's summary fails, its verdict and sentence only."""
    from reports.run_page.head import summary

    try:
        if foreign_entry(folder):
            raise UsageError(result.sentence)
        return summary(folder, program=program(), result=result)
    except Exception:
        return f"{result.verdict.upper()}  {result.run}\n  {result.sentence}"


def tidy(folder: Path, result: RunResult) -> None:
    """Remove the nodes' data folders after a valid run: they are evidence only of a failure."""
    if result.verdict is Verdict.VALID:
        try_to_remove(folder / "data")


def wrong_lines(path: Path) -> list[str]:
    """Return the errors of a history, by line. Raises UsageError if there is no history."""
    from checker.ingest.external_history import external_history_in, validate

    file = path / "history.jsonl" if path.is_dir() else path
    if not file.is_file():
        file = external_history_in(path) or file
    try:
        if why := hole_in(file):
            return [f"{file.name} {why}."]
        return validate(file)
    except OSError as error:
        raise UsageError(f"{path}: no history to read: {reason(error)}") from None
