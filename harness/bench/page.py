"""`floodmark bench page`: how large the page of a run is, how long it takes to build and to paint.

The runs are generated: histories of sends and polls with faults and a lost record near the end,
without traces and logs, for it is the history that grows without end. Painting is measured in a
headless Chromium; where there is none, that column is empty.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.bench.browser import Browser, BrowserError, find
from harness.bench.memory_monitor import MemoryMonitor
from harness.formats.run_info import Phases, RunInfo
from harness.runs.progress import Progress
from nemesis.formats.schedule import Schedule
from node.formats.errors import UsageError
from node.formats.files import write_whole
from reports import build
from reports.charts import plots
from reports.run_page import model

SIZES: Final = (1_000, 100_000, 1_000_000)
_CLIENTS: Final = 12
_PARTITIONS: Final = 4
_ZERO_US: Final = 1_000_000
_OP_US: Final = 1_000
_LINES_A_WRITE: Final = 20_000


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What one page took: `build_s` by the clock, `cpu_s` of this process, which the other loads of
    a machine hardly change; both without plots, `plots_cpu_s` is for those. `paint_ms` is
    None without a browser, `peak_bytes` of this process."""

    ops: int
    page_bytes: int
    build_s: float
    cpu_s: float
    plots_cpu_s: float
    paint_ms: float | None
    peak_bytes: int


def run_page_bench(sizes: Sequence[int], progress: Progress) -> list[Built]:
    """Make, build, open. Raises UsageError for fewer than 100 operations."""
    if min(sizes, default=0) < 100:
        raise UsageError("a history needs 100 operations or more")
    found = []
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        for ops in sizes:
            folder = Path(name) / "bench" / str(ops)
            progress.phase(f"making {ops:,} operations")
            make_run(folder, ops)
            progress.phase(f"building the page of {ops:,} operations")
            found.append(_built(folder, ops, Path(name) / f"profile-{ops}"))
            shutil.rmtree(folder)
    return found


def make_run(folder: Path, ops: int) -> None:
    """A run folder with `ops` operations, a millisecond apart; the same number, the same bytes."""
    folder.mkdir(parents=True)
    end_us = _ZERO_US + ops * _OP_US
    schedule = Schedule(name="bench")
    info = RunInfo(
        run=f"bench/{ops}",
        name="bench",
        seed=1,
        schedule_digest=schedule.digest(),
        replay="",
        protocol="kafka",
        world="real",
        state="finished",
        brokers=("n1", "n2", "n3"),
        voters=("v1",),
        partitions={f"log-{i}": ("n1", "n2", "n3") for i in range(_PARTITIONS)},
        clients={f"c{i}": "producer" if i < 8 else "consumer" for i in range(_CLIENTS)},
        phases=Phases(start_us=1, storm_us=_ZERO_US, heal_us=end_us, end_us=end_us + 1_000_000),
    )
    write_whole(folder / "run.json", msgspec.json.encode(info))
    write_whole(folder / "schedule.json", schedule.to_json())
    with (folder / "history.jsonl").open("w") as file:
        some: list[str] = []
        for line in _history(ops):
            some.append(line)
            if len(some) >= _LINES_A_WRITE:
                file.write("".join(some))
                some.clear()
        file.write("".join(some))
    write_whole(folder / "faults.jsonl", "".join(_faults(end_us)).encode())
    at = ops * 9 // 10 // (2 * _PARTITIONS) * (2 * _PARTITIONS)
    found = {
        "property": "no-lost-acknowledged-write",
        "name": "lost",
        "partition": "log-0",
        "offset": at // (2 * _PARTITIONS) * 5,
        "t_us": _ZERO_US + at * _OP_US,
        "message": "5 records were lost.",
        "witnesses": [{"what": "send, acknowledged", "op": at}],
    }
    result = {
        "run": info.run,
        "verdict": "invalid",
        "sentence": "invalid: 5 records were lost.",
        "anomalies": [found],
    }
    write_whole(folder / "results.json", msgspec.json.encode(result))


def _history(ops: int) -> Iterator[str]:
    """Every other operation sends five records, the others read five; one in fifty goes wrong."""
    rng = random.Random(1)
    for op in range(ops):
        t_us, client = _ZERO_US + op * _OP_US, op % _CLIENTS
        partition = f"log-{op // 2 % _PARTITIONS}"
        base = op // (2 * _PARTITIONS) * 5
        head = f'{{"op":{op},"process":{client},"client":"c{client}"'
        outcome = "ok" if op % 50 else ("info", "fail")[op // 50 % 2]
        end = t_us + int(rng.lognormvariate(8, 0.7))
        if op % 2 == 0:
            what = f'"f":"send","sends":[{{"partition":"{partition}","value":{op * 5},"count":5'
            completed = f'{what},"offset":{base}}}]' if outcome == "ok" else f"{what}}}]"
            yield f'{head},"t_us":{t_us},"type":"invoke",{what}}}]}}\n'
        else:
            what = f'"f":"poll","reads":[{{"partition":"{partition}","start":{base}'
            completed = f'{what},"records":[[{base},{(op - 1) * 5},5,1]],"hw":{base + 5}}}]'
            yield f'{head},"t_us":{t_us},"type":"invoke",{what}}}]}}\n'
        yield f'{head},"t_us":{end},"type":"{outcome}",{completed}}}\n'


def _faults(end_us: int) -> Iterator[str]:
    """Twenty kills, evenly over the run."""
    step = (end_us - _ZERO_US) // 20
    for number in range(20):
        at = _ZERO_US + number * step
        for action, t_us in (("inject", at), ("heal", at + step // 3)):
            yield (
                f'{{"fault":{number},"what":"kill","action":"{action}","t_us":{t_us},'
                f'"on":"n1","nodes":["n1"]}}\n'
            )


def _built(folder: Path, ops: int, profile: Path) -> Built:
    with MemoryMonitor() as memory:
        began, cpu_began = time.monotonic(), time.process_time()
        page = build(folder)
        build_s, cpu_s = time.monotonic() - began, time.process_time() - cpu_began
    page_bytes, paint = page.stat().st_size, _paint_ms(page, profile)
    run = model.read(folder)
    cpu_began = time.process_time()
    plots.draw(run)
    return Built(
        ops=ops,
        page_bytes=page_bytes,
        build_s=round(build_s, 2),
        cpu_s=round(cpu_s, 2),
        plots_cpu_s=round(time.process_time() - cpu_began, 2),
        paint_ms=paint,
        peak_bytes=memory.peak_bytes,
    )


def _paint_ms(page: Path, profile: Path) -> float | None:
    """The second opening counts: the first one starts the browser."""
    try:
        find()
    except BrowserError:
        return None
    with Browser(profile) as browser:
        browser.open(page)
        return round(browser.open(page).first_paint_ms())


def page_table(found: Sequence[Built]) -> str:
    """The figures for a person."""
    lines = [
        f"{'operations':>12} {'page':>9} {'build s':>8} {'CPU s':>6} {'plots':>6} "
        f"{'paint ms':>9} {'peak MB':>8}"
    ]
    lines += [
        f"{b.ops:>12,} {b.page_bytes / 1e6:>6.2f} MB {b.build_s:>8.1f} {b.cpu_s:>6.1f} "
        f"{b.plots_cpu_s:>6.1f} "
        f"{'-' if b.paint_ms is None else f'{b.paint_ms:.0f}':>9} {b.peak_bytes >> 20:>8,}"
        for b in found
    ]
    return "\n".join(lines)
