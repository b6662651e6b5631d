"""The corpus of a search: of many drawn schedules, those that do what few others do.

Each schedule is run, without a bug. What it does are pairs: of events that follow on one another at
one node, and of an event and a fault by kind, role and phase. The corpus has the schedules with the
most rare pairs, so that a rare pair is in one or two of them. The rows of the runs are kept in the
store, and a row that is there is not made again."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.search.draw import corpus
from harness.search.draw.mixture import Mixture
from harness.search.worlds.outcome import ScheduleOutcome, run_simulated

FILE: Final = Path(corpus.__file__)
PROTOCOLS: Final = ("kafka", "kip-279", "quorum")
_SAYS: Final = ("event", "role", "reason", "error", "state")
"""The fields of an event by which it is told from others."""
RARE: Final = 0.03
"""A pair that at most this share of the schedules has is rare."""
_TIMES: Final = 2
"""In so many schedules of the corpus each rare pair is wanted."""


class Done(msgspec.Struct, frozen=True):
    """A drawn schedule, and the pairs of its run."""

    number: int
    pairs: list[str]


def run_of(protocol: str, number: int) -> Done:
    """Run a schedule of the corpus seed and return its pairs."""
    schedule = Mixture(protocol).of_corpus(number)
    return Done(number, sorted(_pairs(run_simulated(schedule, stop_at="never"))))


def _pairs(outcome: ScheduleOutcome) -> set[str]:
    last: dict[str, str] = {}
    found, events = set[str](), set[str]()
    for event in outcome.result.trace if outcome.result is not None else ():
        said = " ".join(str(event[field]) for field in _SAYS if event.get(field))
        found.add(f"{last.get(event['node'], '')} > {said}")
        last[event["node"]] = said
        events.add(said)
    return found | {f"{fault} & {said}" for fault in outcome.fault_coverage for said in events}


def chosen(rows: Sequence[Done], most: int) -> list[Done]:
    """Return up to `most` rows, each the one that adds most to the rare pairs of those before."""
    met = Counter(pair for row in rows for pair in row.pairs)
    rare = {pair for pair, count in met.items() if count <= max(_TIMES, RARE * len(rows))}
    left, taken, have = list(rows), list[Done](), Counter[str]()

    def adds(row: Done) -> float:
        return sum(1 / met[pair] for pair in row.pairs if pair in rare and have[pair] < _TIMES)

    while left and len(taken) < most and adds(best := max(left, key=adds)):
        taken.append(best)
        left.remove(best)
        have.update(best.pairs)
    return taken


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the experiment."""
    parser.add_argument("--draws", type=int, default=300, help="schedules of each protocol")
    parser.add_argument("--most", type=int, default=40, help="schedules of each to keep")
    parser.add_argument("--store", type=Path, default=Path("store/corpus"))


def run(given: argparse.Namespace) -> int:
    """Run the schedules that were not run, and write the corpus."""
    given.store.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for protocol in PROTOCOLS:
        rows = list(_rows(protocol, given.draws, given.store / f"{protocol}.jsonl"))
        numbers = sorted(row.number for row in chosen(rows, given.most))
        head = f"{protocol} "
        text = " ".join(map(str, numbers))
        lines += textwrap.wrap(text, 99, initial_indent=head, subsequent_indent=head)
    head, _, _ = FILE.read_text("utf-8").partition('"""\\\n')
    FILE.write_text(head + '"""\\\n' + "\n".join(lines) + '\n"""\n', "utf-8")
    return 0


def _rows(protocol: str, draws: int, file: Path) -> Iterator[Done]:
    decoder = msgspec.json.Decoder(Done)
    lines = file.read_bytes().splitlines() if file.exists() else []
    known = {row.number: row for row in map(decoder.decode, lines)}
    with file.open("ab") as kept:
        for number in range(draws):
            if number not in known:
                known[number] = run_of(protocol, number)
                kept.write(msgspec.json.encode(known[number]) + b"\n")
    yield from known.values()
