"""Judges histories of few and of many partitions in one process each: time and memory.

    python -m tests.lab partitions

Each partition has the same number of sends and one final read of them. The bars: the largest number
within `MOST_S` processor seconds and `MOST_BYTES`, and a partition among 4,000 at most `MOST_TIMES`
as dear as one among 500, without what a start costs."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.runs.run_paths import run_folder
from node.formats.owned_folder import OwnedFolder

MOST_S: Final = 60.0
MOST_BYTES: Final = 3 << 30
MOST_TIMES: Final = 1.3
FEW, SOME, MANY = 500, 4_000, 20_000
_START: Final = 20


class Cost(NamedTuple):
    """The processor time and the memory of a verdict, and how many partitions it was about."""

    partitions: int
    seconds: float
    peak_bytes: int


def write_history(file: Path, partitions: int, sends: int = 1) -> None:
    """Write a history in which every partition acknowledged `sends` sends, and has them all."""
    with file.open("w") as out:
        for number in range(partitions * (sends + 1)):
            turn, of = divmod(number, partitions)
            final = turn == sends
            send = {"partition": f"log-{of}", "value": number}
            read = {"partition": f"log-{of}", "start": 0}
            records = [[n, n * partitions + of] for n in range(sends)]
            done = (
                {**read, "records": records, "at_end": True} if final else send | {"offset": turn}
            )
            who = {
                "process": 1 + final,
                "client": f"c{1 + final}",
                "f": "poll" if final else "send",
            }
            who |= {"op": number, "final": True} if final else {"op": number}
            what = "reads" if final else "sends"
            for type_, t_us, each in (("invoke", 0, read if final else send), ("ok", 5, done)):
                line = {"t_us": 10 * number + t_us, "type": type_, **who, what: [each]}
                out.write(json.dumps(line) + "\n")


def cost(partitions: int) -> Cost:
    """Judge a history of this many partitions in a process of its own. Raises AssertionError if it
    is not valid."""
    with OwnedFolder() as place:
        file = Path(place, "history.jsonl")
        write_history(file, partitions)
        child = os.fork()
        if not child:
            result = check_run(run_folder(file))
            os._exit(result.verdict is not Verdict.VALID)
        _, status, used = os.wait4(child, 0)
    assert status == 0, f"the history of {partitions} partitions is not valid"
    return Cost(partitions, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def add_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("--most", type=int, default=MANY, help="The largest number of partitions.")


def run(given: argparse.Namespace) -> int:
    """Measure; return 1 if a bar is missed."""
    start, few, some, many = map(cost, (_START, FEW, SOME, given.most))
    for each in (start, few, some, many):
        print(
            f"{each.partitions:,} partitions: {each.seconds:.1f} processor seconds, "
            f"{each.peak_bytes >> 20:,} MB",
            flush=True,
        )
    times = (
        (some.seconds - start.seconds)
        / (few.seconds - start.seconds)
        * (FEW - _START)
        / (SOME - _START)
    )
    print(f"one of {SOME:,} costs {times:.2f} times as much as one of {FEW}")
    return int(times > MOST_TIMES or many.seconds > MOST_S or many.peak_bytes > MOST_BYTES)
