"""Measures speed and memory of the checker on generated histories, and compares its findings."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from checker.engine.stages import check_on_processes
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.lines import readable_lines
from harness.cli.common import print_table
from harness.formats.history import Op
from harness.runs.judge import IN_PROCESS_BYTES, SparkSoon
from harness.runs.run_paths import run_folder
from node.formats.errors import FloodmarkError
from node.formats.owned_folder import OwnedFolder
from tests.lab.bench.anomaly_injection import INJECTIONS, InjectedAnomaly
from tests.lab.bench.groups import GroupMaker
from tests.lab.bench.synthetic import Made, Maker, Size
from tests.lab.usage import MemoryMonitor, ProcessorTime
from tests.support.checker.history_forms import as_jepsen, edn

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
    folder, made = place / f"{size.ops}-operations-{size.hot:g}", maker(size)
    found = _judged(judge, folder, size, made.make(folder))
    if lines:
        found = found._replace(from_lines=tuple(_from_lines(judge, folder, made, found)))
    shutil.rmtree(folder)
    return found


def _from_lines(judge: Judge, folder: Path, made: Maker, known: Checked) -> Iterator[FromLines]:
    """Judge the same history, which first must be read from its lines into tables."""
    target = folder.with_name(f"{folder.name}-lines")
    made.write_lines(target)
    history = target / "history.jsonl"
    yield _of_lines(judge, target, "own", history, known)
    for form, name in (("json", "history.json"), ("edn", "history.edn")):
        other = folder.with_name(f"{folder.name}-{form}") / name
        other.parent.mkdir()
        write_jepsen(history, other, form, made.names)
        yield _of_lines(judge, other, form, other, known)
        shutil.rmtree(other.parent)
    shutil.rmtree(target)


def write_jepsen(history: Path, target: Path, form: str, keys: Sequence[str]) -> None:
    """Write a history of ours as Jepsen records it, as "edn" or "json". Each final reader first
    assigns itself every partition from its beginning."""
    show = edn if form == "edn" else json.dumps
    final: set[int] = set()
    with target.open("w") as out:
        for op in readable_lines(history, Op):
            ops = [op]
            if op.final and op.process not in final:
                final.add(op.process)
                who = {"process": op.process, "client": op.client, "partitions": tuple(keys)}
                begun = Op(t_us=op.t_us, type="invoke", op=-1, f="assign", **who)
                ops = [begun, replace(begun, type="ok"), op]
            out.writelines(f"{show(line)}\n" for line in as_jepsen(ops, seeks=(-1,)))


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
