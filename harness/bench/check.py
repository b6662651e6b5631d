"""`floodmark bench check`: speed, memory and findings of the checker on growing histories."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checker.formats.verdict import RunResult, Verdict
from checker.ingest import tables
from checker.ingest.read_tables import HISTORY_TABLES
from harness.bench.anomaly_injection import INJECTIONS, InjectedAnomaly
from harness.bench.frame import as_table
from harness.bench.requests import CheckBench
from harness.bench.synthetic import Made, Size, make_history
from harness.bench.synthetic_files import write_jepsen, write_lines
from harness.bench.usage import MemoryMonitor, ProcessorTime
from harness.runs.judge import ManyProcesses, SparkOptions, SparkSoon
from harness.runs.progress import Progress
from harness.runs.run_paths import run_folder
from node.formats.errors import FloodmarkError

_LARGE: Final = 1_000_000


class FromLines(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of judging a history from lines: `form` is "own", or Jepsen's "json" or "edn", which
    are translated first. `cpu_s` and `peak_bytes` are sums over all processes."""

    form: str
    bytes: int
    seconds: float
    cpu_s: float
    peak_bytes: int


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of judging one history; `peak_bytes` and `cpu_s` (processor seconds) are sums over
    processes. `floor_s`: processor seconds of reading and sorting the tables' columns."""

    ops: int
    records_read: int
    keys: int
    hot: float
    make_s: float
    seconds: float
    ops_s: float
    cpu_s: float
    floor_s: float
    peak_bytes: int
    verdict: str
    injected: int
    missed: tuple[InjectedAnomaly, ...]
    invented: tuple[InjectedAnomaly, ...]
    from_lines: tuple[FromLines, ...] = ()


def run_check_bench(settings: CheckBench, progress: Progress) -> list[Checked]:
    """Make, judge and compare histories; without Spark by processes of this machine. Raises
    FloodmarkError if Spark is asked for and is missing."""
    spark = SparkOptions(settings.master) if settings.spark else None
    large = max(settings.ops) >= _LARGE
    session = SparkSoon(options=spark._replace(large=large)) if spark else ManyProcesses()
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        sizes = [_size(settings, ops, hot) for ops in settings.ops for hot in settings.hot]
        return [_of_one_size(session, Path(name), settings, size, progress) for size in sizes]


def _of_one_size(
    session: SparkSoon | ManyProcesses,
    place: Path,
    settings: CheckBench,
    size: Size,
    progress: Progress,
) -> Checked:
    """Make and judge one history."""
    folder = place / f"{size.ops}-operations-{size.hot:g}"
    progress.phase(f"making {size.ops:,} operations")
    began = time.monotonic()
    history = make_history(size, folder)
    make_s = time.monotonic() - began
    progress.phase(f"judging {size.ops:,} operations")
    found = _judged(session, folder, size, history, make_s)
    if settings.lines:
        progress.phase(f"reading {size.ops:,} operations from lines")
        read = tuple(_from_lines(session, folder, found))
        found = msgspec.structs.replace(found, from_lines=read)
    shutil.rmtree(folder)
    return found


def _from_lines(
    session: SparkSoon | ManyProcesses, folder: Path, known: Checked
) -> Iterator[FromLines]:
    """Judge the same history, which first must be read from its lines into tables."""
    target = folder.with_name(f"{folder.name}-lines")
    write_lines(folder, target)
    history = target / "history.jsonl"
    yield _of_lines(session, target, "own", history, known)
    for form, name in (("json", "history.json"), ("edn", "history.edn")):
        other = folder.with_name(f"{folder.name}-{form}") / name
        other.parent.mkdir()
        write_jepsen(history, other, form)
        yield _of_lines(session, other, form, other, known)
        shutil.rmtree(other.parent)
    shutil.rmtree(target)


def _of_lines(
    session: SparkSoon | ManyProcesses, path: Path, form: str, file: Path, known: Checked
) -> FromLines:
    """Judge the history at `path`, a run folder or the file of another tool."""
    with MemoryMonitor() as memory, ProcessorTime() as processor:
        began = time.monotonic()
        (result,) = session.check([run_folder(path)])
        seconds = time.monotonic() - began
    if result.verdict != known.verdict:
        raise FloodmarkError(
            f"the history as {form} got another verdict than its tables: {result.sentence}"
        )
    return FromLines(
        form=form,
        bytes=file.stat().st_size,
        seconds=round(seconds, 2),
        cpu_s=round(processor.seconds, 2),
        peak_bytes=memory.peak_bytes,
    )


def _size(settings: CheckBench, ops: int, hot: float) -> Size:
    return Size(
        ops=ops,
        keys=settings.keys,
        poll_records=settings.poll_records,
        hot=hot,
        seed=settings.seed,
        anomalies=tuple(INJECTIONS),
    )


def _judged(
    session: SparkSoon | ManyProcesses, folder: Path, size: Size, made: Made, make_s: float
) -> Checked:
    """Judge one history with a running session."""
    session.ready()
    with MemoryMonitor() as memory, ProcessorTime() as processor:
        began = time.monotonic()
        (result,) = session.check([folder])
        seconds = time.monotonic() - began
    floor_s = floor_of(folder)
    if result.verdict is Verdict.UNKNOWN:
        raise FloodmarkError(f"the history could not be judged: {result.sentence}")
    missed, invented = compare(made.injected, result)
    return Checked(
        ops=made.ops,
        records_read=made.records_read,
        keys=size.keys,
        hot=size.hot,
        make_s=round(make_s, 2),
        seconds=round(seconds, 2),
        ops_s=round(made.ops / seconds),
        cpu_s=round(processor.seconds, 2),
        floor_s=round(floor_s, 2),
        peak_bytes=memory.peak_bytes,
        verdict=result.verdict,
        injected=len(made.injected),
        missed=missed,
        invented=invented,
    )


def floor_of(folder: Path) -> float:
    """Return the processor seconds to read a run's history tables once and sort their integers."""
    began = time.process_time()
    for name in HISTORY_TABLES:
        path = folder / "tables" / f"{name}.parquet"
        if not path.is_file():
            continue
        texts = [field.name for field in tables.SCHEMAS[name] if field.type == pa.string()]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for field in file.schema_arrow:
                column = file.read(columns=[field.name], use_threads=False).column(0)
                if pa.types.is_integer(field.type):
                    np.sort(column.to_numpy())
    return time.process_time() - began


def compare(
    injected: Sequence[InjectedAnomaly], result: RunResult
) -> tuple[tuple[InjectedAnomaly, ...], tuple[InjectedAnomaly, ...]]:
    """Return the injected anomalies that were missed, and reported ones not injected."""
    found = {
        InjectedAnomaly(a.partition, a.name, a.offset, a.count)
        for a in result.anomalies
        if a.verdict is Verdict.INVALID
    }
    return tuple(sorted(set(injected) - found)), tuple(sorted(found - set(injected)))


def check_table(found: Sequence[Checked]) -> str:
    """Format the figures as a text table."""
    lines = as_table(
        (
            *("operations", "hot", "read", "seconds", "operations/s", "cpu s", "floor s"),
            *("x floor", "peak MB", "injected", "missed", "invented"),
        ),
        (
            (
                f"{each.ops:,}",
                f"{each.hot:g}",
                f"{each.records_read:,}",
                f"{each.seconds:.1f}",
                f"{each.ops_s:,.0f}",
                f"{each.cpu_s:.1f}",
                f"{each.floor_s:.2f}",
                f"{each.cpu_s / max(each.floor_s, 0.01):.1f}",
                f"{each.peak_bytes >> 20:,}",
                *(f"{each.injected}", f"{len(each.missed)}", f"{len(each.invented)}"),
            )
            for each in found
        ),
    )
    for each in found:
        lines += [
            f"{each.ops:,} operations from lines, {of.form} ({of.bytes >> 20:,} MB): "
            f"{of.seconds:.1f} s, {each.ops / max(of.seconds, 0.01):,.0f} operations/s, "
            f"{of.cpu_s:.1f} cpu s, peak {of.peak_bytes >> 20:,} MB"
            for of in each.from_lines
        ]
        lines += [f"missed: {missed}" for missed in each.missed]
        lines += [f"invented: {invented}" for invented in each.invented]
    return "\n".join(lines)
