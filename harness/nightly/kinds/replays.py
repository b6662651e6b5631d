"""The replays of a nightly run: saved schedules, in the simulated world and on real processes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from checker.formats.verdict import Verdict
from harness.formats.nightly_journal import Ran, Replayed
from harness.formats.nightly_run import Bucket
from harness.nightly import corpus, plan
from harness.nightly.counting import Counting
from harness.nightly.night import Kind
from harness.replay.replay import has_failed, is_met, replay, requested_schedule
from harness.runs.requests import ReplayRequest
from harness.search.jobs import Job


class ReplayJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that replays a saved schedule in the simulated world."""

    key: str
    file: str

    def do(self) -> Replayed:
        request = ReplayRequest(file=Path(self.file), quiet=True)
        schedule = requested_schedule(request)
        outcomes = list(replay(request))
        return Replayed(
            key=self.key,
            file=self.file,
            protocol=schedule.cluster.protocol,
            bugs=schedule.cluster.bugs,
            faults=len(schedule.faults),
            found=corpus.named(Path(self.file), schedule),
            expectation=schedule.expectation,
            met=is_met(schedule.expectation, outcomes),
            verdict=outcomes[0].verdict,
            sentence=outcomes[0].sentence,
        )


class Replays(Kind):
    """Replays of the corpus: all in the simulated world, then some on real processes."""

    name = "replay"

    def jobs(self) -> list[Job]:
        return self._simulated() or self._real()

    def _simulated(self) -> list[Job]:
        night, done = self.night, self.night.journal.done()
        waiting: list[Job] = [
            ReplayJob(key=key, file=saved.file)
            for saved in corpus.simulated(night.store)
            if (key := f"{self.name}/simulated/{saved.schedule.digest()}") not in done
        ]
        return waiting[: 2 * night.request.cores]

    def _real(self) -> list[Job]:
        """Return the next schedule for real processes, from another place in each nightly run."""
        night, done = self.night, self.night.journal.done()
        if not night.request.real:
            return []
        for saved in plan.rotated(corpus.real(night.store), night.request.number):
            schedule = saved.schedule
            key = f"{self.name}/real/{schedule.digest()}"
            if key not in done and night.fits(schedule):
                name = f"replay-{schedule.name or schedule.digest()}"[:80]
                return [night.real(key, schedule, name, file=saved.file)]
        return []

    @staticmethod
    def count(row: Replayed | Ran, to: Counting) -> None:
        to.totals.replays += 1
        if isinstance(row, Ran):
            met = row.expectation.verdict in ("any", row.verdict)
            if row.expectation.verdict == "invalid":
                met = has_failed(row.expectation, Verdict(row.verdict), tuple(row.broken))
            if not met:
                to.unmet(row, "real")
            to.real_run(row)
        else:
            met, bucket = row.met, _finding(row)
            if not met:
                to.unmet(row, "simulated", is_finding=bucket is not None)
            elif bucket is not None:
                # It was found on a protocol that should hold, and it still fails.
                to.bucket(bucket, 1)
        to.totals.replays_met += met


def _finding(row: Replayed) -> Bucket | None:
    """Return the bucket of a replayed schedule that a protocol should hold, if any."""
    about = [row.expectation.property] if row.expectation.property else []
    if not row.found or plan.is_expected(row.protocol, about, row.bugs):
        return None
    return corpus.found(row.file, row.protocol, row.found, row.faults, row.sentence)
