"""The job of a nightly run that makes one run of real processes and judges it."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.formats.anomalies import LOST_WRITES
from checker.formats.verdict import RunResult, Verdict
from harness.formats.nightly_journal import Ran
from harness.formats.nightly_run import system_label
from harness.runs.judge import build_page
from harness.runs.once import run_once
from harness.runs.program import called
from harness.runs.run import RunOrder
from harness.runs.run_folder import readable_lines, remove
from harness.search.worlds.outcome import fault_coverage
from harness.systems import registry
from harness.systems.adapter import SERVER
from harness.systems.setup import Setup
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule

_KEEPING: Final = (Verdict.INVALID, Verdict.UNKNOWN)


class RealJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that makes one run of real processes and judges it. `why` and `kinds` are as in `Ran`.
    `setup` is what it runs on."""

    key: str
    why: str
    schedule: Schedule
    name: str
    store: str
    kinds: str = ""
    file: str = ""
    setup: Setup = Setup()

    def do(self) -> Ran:
        """Make the run and judge it. Keep its folder, with a page, only after a failure."""
        row = self.row()
        on, command = self.setup.resolved(self.schedule), (*called(), *sys.argv[1:])
        run = run_once(RunOrder(self.schedule, on, self.name, Path(self.store), command))
        if run.verdict is None:
            remove(run.folder, Path(self.store))
        return self.judged(row, run.folder, run.result)

    def judged(self, row: Ran, folder: Path, result: RunResult) -> Ran:
        """Add the verdict to the row of a run; keep the run folder or remove it."""
        faults = readable_lines(folder / "faults.jsonl", FaultLine)
        row.verdict, row.sentence = result.verdict.value, result.sentence
        row.broken = result.broken
        row.lost = sum(a.count for a in result.anomalies if a.property == LOST_WRITES)
        row.faults = sum(fault.action == "inject" for fault in faults)
        if not row.system:
            # Without traces the roles of the nodes that a fault acted on are not known.
            row.fault_coverage = dict(fault_coverage(_trace(folder), faults))
        if result.verdict in _KEEPING:
            build_page(folder, lambda sentence: None)
            row.kept = str(folder.relative_to(self.store))
        else:
            remove(folder, Path(self.store))
        return row

    def row(self) -> Ran:
        """Return the journal row of the run, still without a verdict. Raises FloodmarkError if a
        system does not tell its version."""
        row = Ran(
            key=self.key,
            why=self.why,
            protocol=self.schedule.cluster.protocol,
            verdict="",
            sentence="",
            bugs=self.schedule.cluster.bugs,
            kinds=self.kinds,
            file=self.file,
            expectation=self.schedule.expectation,
        )
        if self.setup.system != registry.DEFAULT:
            system, settings = self.setup.find(), self.setup.settings.items()
            row.system, row.version = system.short_name, system.version()
            row.given = " ".join(f"{name}={v}" for name, v in settings if name != SERVER.name)
            row.protocol = system_label(row.system, row.version, row.given)
            safe = system.safe_settings
            row.holds = safe is None or system.settings.items() >= safe.items()
            row.options = system.run_options()
        return row


def _trace(folder: Path) -> Iterable[dict[str, Any]]:
    traces = sorted((folder / "trace").glob("*.jsonl"))
    files = [readable_lines(path, dict[str, Any]) for path in traces]
    return heapq.merge(*files, key=lambda event: int(event["t_us"]))
