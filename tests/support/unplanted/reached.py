"""Which of the bugs that nobody planted lie on a path that is taken: lines of the sources as they
are that a bug replaces, seen to run in a few short schedules.

    python -m tests.support.unplanted.reached

It prints the codes of the bugs that no schedule reached. Run it from sources: compiled code shows
no lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from msgspec.structs import replace

from harness.search.attempt import attempt
from nemesis.faults.admin import Reassign, SetMinIsr
from nemesis.faults.disks import BitFlip
from nemesis.faults.kill import Kill
from nemesis.faults.messages import Link, Loss
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload, load
from node.core.protocol import KIP_279
from tests.support.paths import ROOT
from tests.support.replica_scenarios import ShortLogs, Variant
from tests.support.unplanted.replacements import UnplantedBug, unplanted_bugs

Places = dict[tuple[str, int], list[str]]
"""(file, line) -> codes of the bugs that replace the line."""
_WORKLOAD: Final = Workload(seed=1, clients=2, consumers=1, rate=20.0, batch=2, duration_ms=4000)
_FETCHES: Final = ("fetch", "fetch-response")
_SAVED: Final = ("tests/corpus", "nemesis/schedules/liftbridge-walk-through.json")


def places(bugs: Iterable[UnplantedBug]) -> Places:
    """The lines that the bugs replace; of one that only adds lines, the line before."""
    found: Places = {}
    for bug in bugs:
        file = ROOT / bug.file
        before, after = file.read_text("utf-8").splitlines(), bug.changed_source().splitlines()
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        for tag, first, end, _, _ in matcher.get_opcodes():
            if tag == "equal":
                continue
            for line in range(first + 1, end + 1) if end > first else (first,):
                found.setdefault((str(file), line), []).append(bug.code)
    return found


def reached(at: Places, runs: Iterable[Callable[[], object]]) -> set[str]:
    """The codes of the bugs at those places whose lines the runs come to. A line outside of all
    functions ran when its module was imported."""
    codes = {code for place in _top_lines(at) for code in at[place]}
    matters: dict[CodeType, bool] = {}

    def of_call(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in matters:
            lines = {line for _, _, line in code.co_lines()}
            matters[code] = any((code.co_filename, line) in at for line in lines if line)
        return of_line if matters[code] else None

    def of_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            codes.update(at.get((frame.f_code.co_filename, frame.f_lineno), ()))
        return of_line

    before = sys.gettrace()
    for run in runs:
        sys.settrace(of_call)
        try:
            run()
        finally:
            sys.settrace(before)
    return codes


def _top_lines(at: Places) -> Iterator[tuple[str, int]]:
    """The places outside of all functions."""
    for name in sorted({name for name, _ in at}):
        module = compile(Path(name).read_text("utf-8"), name, "exec")
        for _, _, line in module.co_lines():
            if line is not None and (name, line) in at:
                yield name, line


def short_runs() -> Iterator[Callable[[], object]]:
    """A few seconds of runs that come to all parts of the core."""
    for name in _SAVED:
        path = ROOT / name
        for file in sorted(path.glob("*.json")) if path.is_dir() else (path,):
            yield _attempt_of(load(file))
    for made in _schedules():
        yield _attempt_of(made)
    logs = ShortLogs(Variant(KIP_279), leader_epoch=5)
    yield lambda: logs.left("0e1 1e3 2e3", "0e1 1e1 2e1 3e4", 0)
    yield lambda: logs.left("0e1", "0e2", 0)


def _attempt_of(schedule: Schedule) -> Callable[[], object]:
    return lambda: attempt(schedule, stop_at="never")


def _schedules() -> Iterator[Schedule]:
    """What no saved schedule has: retention, idempotent producers, a move that is cancelled, a new
    MinISR, a leader that is left alone, a damaged voter, and a proposal that is sent again after it
    was accepted."""
    one = Cluster(partitions=1)
    yield _short(replace(one, retention_records=10), Kill(on="n3", at_ms=500, for_ms=3000))
    answers = ("produce-response",)
    lost = Loss(on="n1", to="clients", kinds=answers, percent=50, at_ms=500, for_ms=3000)
    retries = _short(one, lost)
    yield replace(retries, workload=replace(_WORKLOAD, idempotent=True, rate=50.0))
    yield _short(
        replace(one, brokers=4),
        Kill(on="n4", at_ms=900, for_ms=800),
        Reassign(partition="log-0", replicas="n2,n3,n4", at_ms=1000),
        Reassign(partition="log-0", replicas="", at_ms=1100),
        SetMinIsr(min_isr=1, at_ms=2500),
    )
    yield _short(one, *(Kill(on=follower, at_ms=500, for_ms=2500) for follower in ("n2", "n3")))
    damage = BitFlip(on="n2", part="payload", at_ms=1500, for_ms=300)
    yield _short(replace(one, protocol="quorum"), damage)
    no_news: dict[str, Any] = {"on": "v1", "to": "n1", "action": "drop"}
    yield _short(
        one,
        Loss(on="n3", to="n1", kinds=_FETCHES, two_way=True, percent=100, at_ms=1000, for_ms=2500),
        Link(**no_news, kinds=("fetch-response",), at_ms=1150, for_ms=600),
        Link(**no_news, kinds=("alter-partition-response",), limit=1, at_ms=1000, for_ms=2500),
    )


def _short(cluster: Cluster, *faults: Fault) -> Schedule:
    return Schedule(cluster=cluster, workload=_WORKLOAD, faults=faults)


def main() -> None:
    """The command."""
    bugs = unplanted_bugs()
    codes = reached(places(bugs), short_runs())
    print(*(bug.code for bug in bugs if bug.code not in codes))


if __name__ == "__main__":
    main()
