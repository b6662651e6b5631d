"""A process of the simulated world boots as long as it does, whatever is done to it meanwhile; a
cluster that never starts and a process that never rests are findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats.verdict import Verdict
from harness.replay.replay import replay
from harness.runs.requests import ReplayRequest
from harness.search import findings
from harness.search.search_jobs import FinishJob, SearchJob
from harness.search.worlds.outcome import run_simulated
from harness.search.worlds.simulated import SimulatedSubject
from harness.search.worlds.subject import RunFolders
from harness.sim import run as sim_run
from harness.sim.node import LatencyProfile
from harness.sim.run import simulate
from nemesis.faults import Kill, Pause
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.core import follower
from node.core.controller import Controller
from node.core.replica import Replica

BOOT_MS = 2000


@pytest.mark.parametrize(
    ("pause_at_ms", "for_ms", "up_ms"), [(700, 10, BOOT_MS), (2450, 100, 2050), (2300, 400, 2200)]
)
def test_a_pause_never_shortens_a_boot(pause_at_ms: int, for_ms: int, up_ms: int) -> None:
    """It is up when it has booted, or when a pause that it was in then is over."""
    kill, start_ms = Kill(on="n1", at_ms=100, for_ms=400), 500
    pause = Pause(on="n1", at_ms=pause_at_ms, for_ms=for_ms)
    schedule = Schedule(
        cluster=Cluster(partitions=1),
        workload=Workload(seed=1, clients=1, consumers=0, duration_ms=4000),
        faults=(kill, pause),
    )
    slow = LatencyProfile(boot_us=(BOOT_MS * 1000, BOOT_MS * 1000), notice_us=(0, 0))
    run = simulate(schedule, seed=1, latency=slow)
    again = [e["t_us"] for e in run.trace if e["node"] == "n1" and e["incarnation"] == 2]
    since_ms = (again[0] - run.info.phases.storm_us) // 1000 - start_ms
    assert up_ms <= since_ms <= up_ms + 25


def test_a_cluster_that_never_starts_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that answers no request registers no broker, so no partition gets a leader."""
    monkeypatch.setattr(Controller, "on_register", lambda self, ctx, source, request: None)
    schedule = Schedule(cluster=Cluster(), workload=Workload(seed=1))
    run = simulate(schedule, seed=1, stop_at="never")
    assert run.verdict is Verdict.INVALID
    assert "every partition of the simulated cluster had a leader after 30 s" in str(run.violations)
    assert run_simulated(schedule).bucket == "liveness: cluster-starts"


def test_a_process_that_never_rests_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "next_us", lambda r: 1)
    run = simulate(Schedule(cluster=Cluster(), workload=Workload(seed=1)), seed=1)
    assert run.verdict is Verdict.INVALID
    assert run.sentence.startswith("invalid: n1 ended by itself with code 70: it never rests")


def test_a_step_that_never_ends_is_found_shrunk_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower of the second leader is caught in a loop."""

    def caught(r: Replica) -> int:
        while r.leader_epoch > 1:
            pass
        return due_us(r)

    due_us = follower.next_us
    monkeypatch.setattr(follower, "next_us", caught)
    monkeypatch.setattr(sim_run, "LOOK_S", 0.03)
    subject, place = SimulatedSubject(protocol="kafka"), RunFolders(str(tmp_path))
    searched = SearchJob(key="search/0", subject=subject, seed=0, first=0, count=100).do()
    (finding,) = searched.findings
    assert finding.bucket == "liveness: process-lives"
    assert "ended by itself with code 70: it never rests: a step takes more" in finding.sentence
    made = FinishJob(key="1", subject=subject, finding=finding, tries=25, place=place, form=False)
    smallest = made.do().finding.smallest
    assert len(smallest.faults) == 1
    assert len(smallest.faults) < len(finding.drawn.faults)
    (again,) = replay(ReplayRequest(file=findings.folder_of(tmp_path, finding)))
    assert again.failed
    assert "n1 ended by itself with code 70, 0.466 s into the storm" in again.sentence
