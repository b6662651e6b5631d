"""Measures speed and memory of the checker on generated histories, and compares its findings."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from checker.engine.stages import check_on_processes
from checker.formats.verdict import RunResult, Verdict
from harness.cli.common import print_table
from harness.runs.judge import IN_PROCESS_BYTES, SparkSoon
from harness.runs.run_paths import run_folder
from node.formats.errors import FloodmarkError
from node.formats.owned_folder import OwnedFolder
from tests.lab.bench.anomaly_injection import INJECTIONS, InjectedAnomaly
from tests.lab.bench.groups import GroupMaker
from tests.lab.bench.synthetic import Made, Maker, Size
from tests.lab.bench.synthetic_files import write_jepsen, write_lines
from tests.lab.usage import MemoryMonitor, ProcessorTime

_LARGE: Final = 1_000_000
Judge = Callable[[Sequence[Path]], list[RunResult]]


class FromLines(NamedTuple):
    """The cost of judging a history from lines: `form` is "own", or Jepsen's "json" or "edn", which
    are translated first. `cpu_s` and `peak_bytes` are sums over all processes."""

    form: str
    bytes: int
    seconds: float
    cpu_s: float
    peak_bytes: int


class Checked(NamedTuple):
    """The cost of judging one history; `peak_bytes` and `cpu_s` (processor seconds) are sums over
    processes."""

    made: Made
    hot: float
    seconds: float
    cpu_s: float
    peak_bytes: int
    verdict: str
    missed: tuple[InjectedAnomaly, ...]
    invented: tuple[InjectedAnomaly, ...]
    from_lines: tuple[FromLines, ...] = ()


def run_check_bench(
    ops: Sequence[int], hot: Sequence[float], *, lines: bool, spark: bool, group: bool = False
) -> list[Checked]:
    """Make, judge and compare histories: each size with each share of the sends to the first key.
    With `group` a group consumes. Raises FloodmarkError if Spark is asked for and is missing."""
    judge: Judge = partial(check_on_processes, small_bytes=IN_PROCESS_BYTES)
    if spark:
        session = SparkSoon()
        session.begin(large=max(ops) >= _LARGE)
        session.ready()
        judge = session.check
    injected = () if group else tuple(INJECTIONS)
    sizes = [Size(ops=count, hot=share, anomalies=injected) for count in ops for share in hot]
    maker = GroupMaker if group else Maker
    with OwnedFolder() as name:
        return [_of_one_size(judge, Path(name), size, maker, lines=lines) for size in sizes]


def _of_one_size(
    judge: Judge, place: Path, size: Size, maker: type[Maker], *, lines: bool
) -> Checked:
    """Make and judge one history."""
    folder = place / f"{size.ops}-operations-{size.hot:g}"
    folder.mkdir()
    found = _judged(judge, folder, size, maker(size, folder).make())
    if lines:
        found = found._replace(from_lines=tuple(_from_lines(judge, folder, found)))
    shutil.rmtree(folder)
    return found


def _from_lines(judge: Judge, folder: Path, known: Checked) -> Iterator[FromLines]:
    """Judge the same history, which first must be read from its lines into tables."""
    target = folder.with_name(f"{folder.name}-lines")
    write_lines(folder, target)
    history = target / "history.jsonl"
    yield _of_lines(judge, target, "own", history, known)
    for form, name in (("json", "history.json"), ("edn", "history.edn")):
        other = folder.with_name(f"{folder.name}-{form}") / name
        other.parent.mkdir()
        write_jepsen(history, other, form)
        yield _of_lines(judge, other, form, other, known)
        shutil.rmtree(other.parent)
    shutil.rmtree(target)


def _of_lines(judge: Judge, path: Path, form: str, file: Path, known: Checked) -> FromLines:
    """Judge the history at `path`, a run folder or the file of another tool."""
    with MemoryMonitor() as memory, ProcessorTime() as processor:
        began = time.monotonic()
        (result,) = judge([run_folder(path)])
        seconds = time.monotonic() - began
    if result.verdict != known.verdict:
        raise FloodmarkError(
            f"the history as {form} got another verdict than its tables: {result.sentence}"
        )
    return FromLines(
        form=form,
        bytes=file.stat().st_size,
        seconds=seconds,
        cpu_s=processor.seconds,
        peak_bytes=memory.peak_bytes,
    )


def _judged(judge: Judge, folder: Path, size: Size, made: Made) -> Checked:
    """Judge one history."""
    with MemoryMonitor() as memory, ProcessorTime() as processor:
        began = time.monotonic()
        (result,) = judge([folder])
        seconds = time.monotonic() - began
    if result.verdict is Verdict.UNKNOWN:
        raise FloodmarkError(f"the history could not be judged: {result.sentence}")
    missed, invented = compare(made.injected, result)
    return Checked(
        made=made,
        hot=size.hot,
        seconds=seconds,
        cpu_s=processor.seconds,
        peak_bytes=memory.peak_bytes,
        verdict=result.verdict,
        missed=missed,
        invented=invented,
    )


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


def print_checked(found: Sequence[Checked]) -> None:
    """Print the figures as a table, and what was missed or invented."""
    titles = ("operations", "hot", "read", "seconds", "operations/s", "cpu s", "peak MB")
    rows = (
        (
            f"{each.made.ops:,}",
            f"{each.hot:g}",
            f"{each.made.records_read:,}",
            f"{each.seconds:.1f}",
            f"{each.made.ops / each.seconds:,.0f}",
            f"{each.cpu_s:.1f}",
            f"{each.peak_bytes >> 20:,}",
            f"{len(each.made.injected)}",
            f"{len(each.missed)}",
            f"{len(each.invented)}",
        )
        for each in found
    )
    print_table((*titles, "injected", "missed", "invented"), rows, json=False)
    for each in found:
        for of in each.from_lines:
            print(
                f"{each.made.ops:,} operations from lines, {of.form} ({of.bytes >> 20:,} MB): "
                f"{of.seconds:.1f} s, {each.made.ops / of.seconds:,.0f} operations/s, "
                f"{of.cpu_s:.1f} cpu s, peak {of.peak_bytes >> 20:,} MB"
            )
        for missed in each.missed:
            print(f"missed: {missed}")
        for invented in each.invented:
            print(f"invented: {invented}")
