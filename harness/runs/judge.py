"""Judges run folders, builds their pages, sums up the result for the terminal.

Spark is slow to import and to start, so nothing here imports it before it is needed; where it
cannot be had, the same checks are made in this process, and a sentence on stderr says why.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from checker.engine.local import check_runs
from checker.formats.errors import CheckerError
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.external_history import external_history_in, validate
from checker.ingest.ingest import work_bytes
from checker.output.timeline_file import write_timeline
from harness.runs.program import program
from node.formats.errors import FloodmarkError, UsageError

if TYPE_CHECKING:
    from checker.engine.spark_session import SessionInBackground

APP_NAME: Final = "floodmark"
SPARK_PATIENCE_S: Final = 180.0
SMALL_HEAP: Final = "2g"
LARGE_HEAP: Final = "3g"
_LARGE_BYTES: Final = 256 << 20

Tell = Callable[[str], None]


class SparkOptions(NamedTuple):
    """Where Spark runs and how much of this machine it may take.

    `master`: a cluster's URL, None for this machine. `driver_memory`: the limit of the JVM's heap
    in Java's spelling; "" leaves it to the amount of work. `large`: None for the same.
    """

    master: str | None = None
    driver_memory: str = ""
    large: bool | None = None


class SparkSoon:
    """A Spark session that is made ready while something else goes on."""

    def __init__(self, log_file: Path | None = None, options: SparkOptions | None = None) -> None:
        """`log_file` gets what Spark prints; it is started by `begin`."""
        self._log_file = log_file
        self._options = options or SparkOptions()
        self._session: SessionInBackground | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether a cluster was asked for: this process is then no substitute."""
        return self._options.master is not None

    def begin(self, *, large: bool = False) -> None:
        """Start it now, in the background; `large` for histories of millions of operations."""
        from checker.engine.spark_session import SessionInBackground

        if self._session is None:
            options = self._options
            large = large if options.large is None else options.large
            memory = options.driver_memory or (LARGE_HEAP if large else SMALL_HEAP)
            self._session = SessionInBackground(
                APP_NAME,
                master=options.master,
                driver_memory=memory,
                small=not large,
                log_file=self._log_file,
            )

    def ready(self) -> None:
        """Wait for it. Raises CheckerError when Spark cannot be had."""
        self.begin()
        assert self._session is not None
        self._session.get(SPARK_PATIENCE_S)

    def check(
        self, folders: Sequence[Path], *, out: Path | None = None, again: bool = True
    ) -> list[RunResult]:
        """Judge run folders on it. Raises CheckerError when Spark cannot be had or fails."""
        from checker.engine.spark_job import check

        self.begin(large=work_bytes(folders) > _LARGE_BYTES)
        assert self._session is not None
        session = self._session.get(SPARK_PATIENCE_S)
        return check(folders, session=session, out=out, again=again)


class Keep(NamedTuple):
    """Where results go (None: into the run folders); whether unchanged runs are judged again."""

    out: Path | None = None
    again: bool = True


def judge(
    folders: Sequence[Path], spark: SparkSoon | None, tell: Tell, keep: Keep | None = None
) -> list[RunResult]:
    """Judge run folders and leave `results.json` of each, and a `timeline.json` where there is one.

    Without `spark` in this process. `tell` takes sentences for a person. Raises FloodmarkError if
    results cannot be written, or a cluster that was asked for cannot be had.
    """
    keep = keep or Keep()
    results = _judged(folders, spark, tell, keep)
    for folder, result in zip(folders, results, strict=True):
        if keep.out is not None:
            break
        try:
            write_timeline(folder, result)
        except (OSError, LookupError, TypeError) as error:
            tell(f"The timeline of {folder} could not be written: {error}")
    return results


def _judged(
    folders: Sequence[Path], spark: SparkSoon | None, tell: Tell, keep: Keep
) -> list[RunResult]:
    """On Spark if it can be had, else in this process."""
    if spark is not None:
        try:
            return spark.check(folders, out=keep.out, again=keep.again)
        except CheckerError as error:
            if spark.elsewhere:
                raise
            tell(f"{error} The run is judged in this process instead.")
    try:
        return check_runs(folders, out=keep.out, again=keep.again)
    except OSError as error:
        raise FloodmarkError(f"the results could not be written: {error}") from None


def build_page(folder: Path, tell: Tell) -> Path | None:
    """Write `report.html`; a failure is reported and changes no verdict."""
    from reports import build

    try:
        return build(folder, program=program())
    except Exception as error:
        tell(f"The page could not be built: {error}")
        return None


def summarise(folder: Path, result: RunResult) -> str:
    """A run in a few lines, even if the report cannot sum it up."""
    from reports.run_page.head import summary

    try:
        return summary(folder, program=program())
    except Exception:
        return f"{result.verdict.upper()}  {result.run}\n  {result.sentence}"


def tidy(folder: Path, result: RunResult) -> None:
    """The nodes' own data is evidence only where something was found."""
    if result.verdict is Verdict.VALID:
        shutil.rmtree(folder / "data", ignore_errors=True)


def wrong_lines(path: Path) -> list[str]:
    """What is wrong with a history, by line. Raises UsageError where there is none."""
    file = path / "history.jsonl" if path.is_dir() else path
    if not file.is_file():
        file = external_history_in(path) or file
    try:
        return validate(file)
    except OSError as error:
        raise UsageError(f"{path}: no history to read: {error.strerror}") from None
