"""The kinds of work of a nightly run. A kind is a class: its jobs, and what their rows count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.formats.verdict import Verdict
from harness.formats.journal import FinishedRow, Lost, SearchedRow, add_to
from harness.formats.nightly_journal import AnyRow, DeterminismChecked, Ran, Replayed, Skipped
from harness.formats.nightly_run import (
    Bucket,
    Canary,
    NightlyRun,
    Storms,
    SystemStorms,
    TimeToBug,
    bucket_of,
)
from harness.nightly import corpus, plan
from harness.nightly.counting import Counting, real_class
from harness.nightly.night import Kind
from harness.nightly.rows import RowRunning
from harness.replay.replay import has_failed, is_met, replay, requested_schedule
from harness.runs.options import to_schedule
from harness.runs.requests import ReplayRequest, RunRequest
from harness.search import findings
from harness.search.catalogue.known_bugs import broken_by, correct_protocols, search_targets
from harness.search.draw.storms import StormGenerator
from harness.search.jobs import Job, JobProcesses, do_one
from harness.search.search_jobs import FinishJob, SearchJob
from harness.search.worlds.simulated import CHUNK, BugSubject, SimulatedSubject
from harness.search.worlds.subject import RunFolders, never
from harness.sim.run import simulate
from nemesis.faults import Isolate, aliases
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.core import protocol as protocols
from node.formats.errors import FloodmarkError, UsageError

LEAST_FINISH_S: Final = 60.0
"""The time that shrinking and explaining a finding may take even after the budget."""


class Searches(Kind):
    """The search of protocols that should hold, alternately. Findings are shrunk first."""

    name = "search"

    def jobs(self) -> list[Job]:
        return self._finish_jobs() or self._search_jobs()

    def _search_jobs(self) -> list[Job]:
        night, held, known = self.night, correct_protocols(), self._known()
        return [
            SearchJob(
                key=f"{self.name}/{number}",
                subject=SimulatedSubject(protocol=protocol),
                seed=night.seed + number,
                first=0,
                count=night.request.job_schedules or CHUNK,
                known=tuple(sorted(known.get(protocol, ()))),
                seconds=min(night.request.job_s, night.left_s()),
            )
            for number in night.open_numbers(self.name, night.request.cores)
            for protocol in [held[number % len(held)]]
        ]

    def _finish_jobs(self) -> list[Job]:
        """Return the jobs that shrink and explain what was found, the first with a page."""
        night, done, rows = self.night, self.night.journal.done(), self.night.rows(self.name)
        pages = night.request.pages
        pages -= sum(bool(row.page) for row in rows if isinstance(row, FinishedRow))
        found: list[Job] = []
        for row in (row for row in rows if isinstance(row, SearchedRow)):
            for finding in row.findings:
                folder = findings.folder_of(night.store, finding)
                if (key := f"{self.name}/finding/{folder.name}") in done:
                    continue
                found.append(
                    FinishJob(
                        key=key,
                        subject=SimulatedSubject(protocol=row.subject),
                        finding=findings.latest(night.store, finding),
                        seconds=max(LEAST_FINISH_S, night.left_s()),
                        tries=night.request.shrink_tries,
                        place=RunFolders(str(night.store)),
                        page=len(found) < pages,
                    )
                )
        return found[: night.request.cores]

    def _known(self) -> dict[str, set[str]]:
        """Return by protocol the buckets that still have a schedule; others count as new."""
        known: dict[str, set[str]] = {}
        for bucket in (bucket for nightly in self.night.past for bucket in nightly.buckets):
            if bucket.schedule and (self.night.store / bucket.schedule).is_file():
                known.setdefault(bucket.protocol, set()).add(bucket.name)
        for row in self.night.rows(self.name):
            if isinstance(row, SearchedRow):
                known.setdefault(row.subject, set()).update(f.bucket for f in row.findings)
        return known

    def done(self, row: SearchedRow | FinishedRow) -> SearchedRow | FinishedRow:
        """Keep the new buckets among the findings of a search: two jobs may find the same one."""
        if isinstance(row, SearchedRow):
            known = self._known().get(row.subject, ())
            row.findings = [finding for finding in row.findings if finding.bucket not in known]
            for finding in row.findings:
                findings.keep(finding, self.night.store)
                self.night.environment.tell(f"{row.subject}: {finding.bucket}")
        return row

    @staticmethod
    def count(row: SearchedRow | FinishedRow, to: Counting) -> None:
        if isinstance(row, FinishedRow):
            bucket = corpus.bucket_of(row.finding, row.folder, row.page, to.store)
            to.bucket(bucket, 0)
            return
        totals = to.totals
        totals.schedules += row.runs
        totals.search_seconds = round(totals.search_seconds + row.seconds, 2)
        totals.virtual_seconds = round(totals.virtual_seconds + row.virtual_us / 1e6, 1)
        totals.events += row.events
        totals.failures += row.failures
        verdicts = {"invalid": row.failures, "not invalid": row.runs - row.failures}
        cell = to.cell(row.subject, "simulated", row.runs, verdicts)
        kept: dict[str, Bucket] = {}
        for finding in row.findings:
            folder = findings.folder_of(to.store, finding).relative_to(to.store)
            bucket = corpus.bucket_of(finding, str(folder), "", to.store)
            kept[bucket.name] = bucket
        for name, number in row.buckets.items():
            bucket = kept.get(name) or bucket_of(row.subject, "simulated", name)
            add_to(cell.broken, bucket.property, number)
            to.bucket(bucket, number)
        to.coverage(row.fault_coverage)
        to.nightly.problems += [f"{row.key}: {problem}" for problem in row.problems]


class KnownBugs(Kind):
    """The search for each known bug, those with the fewest searches in all nightly runs first."""

    name = "known-bug"

    def jobs(self) -> list[Job]:
        night = self.night
        counts = Counter(search.code for nightly in night.past for search in nightly.known_bugs)
        counts.update(r.subject for r in night.rows(self.name) if isinstance(r, SearchedRow))
        targets = sorted(search_targets(), key=lambda target: counts[target.code])
        numbers = night.open_numbers(self.name, night.request.cores)
        return [
            SearchJob(
                key=f"{self.name}/{number}",
                subject=BugSubject.of(target),
                seed=night.seed + number,
                first=0,
                count=CHUNK,
                seconds=min(night.request.known_bug_s, night.left_s()),
            )
            for number, target in zip(numbers, targets, strict=False)
        ]

    @staticmethod
    def count(row: SearchedRow, to: Counting) -> None:
        for target in (t for t in search_targets() if t.code == row.subject):
            to.nightly.known_bugs.append(
                TimeToBug(
                    code=target.code,
                    name=target.name,
                    protocol=target.protocol,
                    breaks=target.breaks,
                    found=bool(row.findings),
                    schedules=row.schedules,
                    seconds=row.core_s,
                )
            )


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


MOST_LOSSES_OF_A_CELL: Final = 2
MEMBERS: Final = 3
"""Members of the group of a storm with an odd seed."""
CANARY_BUG: Final = "ack-before-isr"
_CANARY_RESULTS: Final = {Verdict.INVALID.value: "failed", Verdict.UNKNOWN.value: ""}
FAULT_SETS: Final = (
    *aliases(),
    "kill",
    "pause",
    "delay",
    "loss",
    "kill,pause,partition",
    "power-cut",
    "stall",
)
"""The sets of fault kinds of a nightly run's storms. In storms with power cuts brokers run with
flush=async, so protocols that promise durability only with flush=sync get no such storms."""
Cell = tuple[str, str]
"""A protocol and a set of fault kinds."""


class CanaryStorm(Kind):
    """A storm that must fail, before all else."""

    name, real = plan.CANARY, True

    def jobs(self) -> list[Job]:
        if self.name in self.night.journal.done():
            return []
        return [self.night.real(self.name, canary(), self.name)]

    @staticmethod
    def count(row: Ran, to: Counting) -> None:
        to.nightly.canary = Canary(
            result=_CANARY_RESULTS.get(row.verdict, "missed"),
            bug=", ".join(row.bugs),
            sentence=row.sentence,
            seconds=row.seconds,
        )


def canary() -> Schedule:
    """Return a storm that must fail: a bug acknowledges too soon, then leaders are isolated."""
    faults = tuple(
        Isolate(on=f"leader:log-{number}", at_ms=1500 + 3500 * number, for_ms=2500)
        for number in range(2)
    )
    return Schedule(
        name="canary",
        cluster=Cluster(partitions=2, bugs=(CANARY_BUG,)),
        workload=Workload(seed=1, clients=4, consumers=2, duration_ms=8500),
        faults=faults,
    )


class OwnStorms(Kind):
    """Storms on the protocols: each is of the cell with the fewest runs in all nightly runs."""

    name, real = "storm", True

    def jobs(self) -> list[Job]:
        night = self.night
        while (cell := least_hit(night.rows(self.name), night.past)) is not None:
            protocol, kinds = cell
            seed = night.seed + sum(not isinstance(row, Skipped) for row in night.rows(self.name))
            flush = "async" if "power-cut" in kinds else None
            request = RunRequest(
                protocol=protocol,
                faults=kinds,
                seed=seed,
                flush=flush,
                time_limit=night.request.storm_s,
                members=MEMBERS if seed % 2 else None,
            )
            try:
                schedule = to_schedule(request)
            except UsageError as error:
                night.skip(f"{self.name}/{protocol}/{kinds}", error)
                continue
            if not night.fits(schedule):
                return []
            key, name = "/".join((self.name, *cell, str(seed))), f"{protocol}-{kinds}"
            return [night.real(key, schedule, name.replace(",", "-"), kinds=kinds)]
        return []

    @staticmethod
    def count(row: Ran, to: Counting) -> None:
        to.totals.storms += 1
        cell = (row.protocol, row.kinds)
        known = next((s for s in to.nightly.storms if (s.protocol, s.kinds) == cell), None)
        if known is None:
            known = Storms(protocol=row.protocol, kinds=row.kinds)
            to.nightly.storms.append(known)
        known.runs += 1
        to.real_run(row)


def least_hit(rows: Iterable[AnyRow], past: Iterable[NightlyRun]) -> Cell | None:
    """Return the cell with the fewest runs, in `past` nightly runs and by the rows of this one, of
    those that start here; None if none does. Among equals, protocols that should hold come first,
    then the order of the registry."""
    begun: Counter[Cell] = Counter()
    lost: Counter[Cell] = Counter()
    for row in rows:
        _, protocol, kinds, *_ = (*row.key.split("/"), "", "")
        begun[protocol, kinds] += not isinstance(row, Skipped)
        lost[protocol, kinds] += MOST_LOSSES_OF_A_CELL * isinstance(row, Skipped)
        lost[protocol, kinds] += isinstance(row, Lost)
    for storms in (storms for nightly in past for storms in nightly.storms):
        begun[storms.protocol, storms.kinds] += storms.runs
    cells = (cell for cell in _cells() if lost[cell] < MOST_LOSSES_OF_A_CELL)
    return min(cells, key=lambda cell: begun[cell], default=None)


def _cells() -> list[Cell]:
    others = [p.name for p in protocols.REGISTRY.values() if broken_by(p)]
    return [
        (name, kinds)
        for group in (correct_protocols(), others)
        for kinds in FAULT_SETS
        for name in group
        if not ("power-cut" in kinds and protocols.protocol(name).clean_only)
    ]


class ThirdPartyStorms(Kind):
    """Storms on third-party systems: the next is of the one with the fewest, and each version gets
    the same storms."""

    name, real = plan.SYSTEM, True

    def jobs(self) -> list[Job]:
        night = self.night
        begun = Counter(row.key.rpartition("/")[0] for row in night.rows(self.name))
        subject = min(night.systems, key=lambda one: begun[f"{self.name}/{one.identity}"])
        about = f"{self.name}/{subject.identity}"
        system = subject.find()
        storm = StormGenerator(subject, system, night.request.number).draw(begun[about])
        if not night.fits(storm.schedule):
            return []
        more = {"kinds": storm.family, "setup": subject}
        name = system.short_name.lower()
        return [night.real(f"{about}/{begun[about]}", storm.schedule, name, **more)]

    @staticmethod
    def count(row: Ran, to: Counting) -> None:
        known = next((one for one in to.nightly.systems if one.name == row.protocol), None)
        if known is None:
            known = SystemStorms(system=row.system, version=row.version, given=row.given)
            to.nightly.systems.append(known)
        known.runs += 1
        add_to(known.verdicts, row.verdict)
        if row.verdict == Verdict.INVALID:
            add_to(known.buckets, real_class(row).name)
        to.real_run(row)


KINDS: Final[dict[str, type[Kind]]] = {
    kind.name: kind
    for kind in (
        *(CanaryStorm, Searches, KnownBugs, OwnStorms, Replays, Determinism),
        *(ThirdPartyStorms, RowRunning),
    )
}
"""All kinds, by the first word of the keys of their jobs."""
