"""The check of determinism: two processes draw and simulate the same schedules."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.formats.nightly_journal import DeterminismChecked
from harness.nightly.counting import Counting
from harness.nightly.night import Kind
from harness.search.catalogue.known_bugs import correct_protocols
from harness.search.deadline import never
from harness.search.jobs import Job, JobProcesses, do_one
from harness.search.worlds.simulated import SimulatedSubject
from harness.sim.run import simulate
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError

FAILED: Final = "could not be run"


class DeterminismJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job in which two processes, one after the other, draw and simulate `runs` schedules; their
    digests must be equal. `output` is the file that they print to, "" in one of them."""

    key: str
    protocol: str
    seed: int
    runs: int
    output: str

    def do(self) -> Any:
        """Return the row of the check; in one of the two processes, the digests."""
        if not self.output:
            subject = SimulatedSubject(protocol=self.protocol)
            return [_digest(subject.draw(self.seed, number)) for number in range(self.runs)]
        once = msgspec.structs.replace(self, output="")
        with closing(JobProcesses(1, Path(self.output))) as pool:
            pairs = zip(*(do_one(once, pool, never) for _ in range(2)), strict=True)
            differing = [one[0] for one, other in pairs if one != other]
        return DeterminismChecked(
            key=self.key,
            protocol=self.protocol,
            seed=self.seed,
            runs=self.runs,
            differing=differing,
        )


def _digest(schedule: Schedule) -> tuple[Schedule, str]:
    try:
        run = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
    except FloodmarkError as error:
        return schedule, f"{FAILED}: {error}"
    return schedule, run.digest


class Determinism(Kind):
    """Schedules of the protocols that should hold, alternately, each run in two processes."""

    name = "determinism"

    def jobs(self) -> list[Job]:
        night, held = self.night, correct_protocols()
        return [
            DeterminismJob(
                key=f"{self.name}/{number}",
                protocol=held[number % len(held)],
                seed=night.seed + number,
                runs=night.request.determinism_runs,
                output=str(night.environment.output),
            )
            for number in night.open_numbers(self.name, 1)
        ]

    @staticmethod
    def count(row: DeterminismChecked, to: Counting) -> None:
        to.totals.determinism_runs += row.runs
        to.nightly.differing += [
            f"{row.protocol}, schedule {schedule.digest()} of seed {row.seed} came out otherwise "
            "the second time"
            for schedule in row.differing
        ]
