"""The real jobs of a nightly run: searches, replays, processes, fault coverage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.formats.finding import REAL
from harness.formats.nightly_journal import Replayed, Searched
from harness.formats.nightly_run import nightly_runs
from harness.nightly import corpus, jobs
from harness.nightly.environment import side_by_side
from harness.nightly.jobs import DeterminismJob, Digests, KnownBugJob, ReplayJob, SearchJob
from harness.search.campaign import INTERNAL, Budget, Finding
from harness.search.fault_coverage import fault_coverage
from harness.search.real_schedule import slow_motion
from nemesis.formats.fault_log import Action, FaultLine
from nemesis.formats.schedule import load
from tests.harness.search.test_attempt import LOST, bitten
from tests.support.paths import ROOT

LIMITS = {"budget": Budget(until_failure=True), "shrink_tries": 30, "pages": 1}
SEARCH = SearchJob(key="search/0", protocol="high-watermark", seed=0, store="", **LIMITS)


@pytest.mark.integration
def test_the_finding_of_a_search_becomes_part_of_the_corpus(tmp_path: Path) -> None:
    search = msgspec.structs.replace(SEARCH, store=str(tmp_path))
    row = jobs.do(search)
    assert isinstance(row, Searched)
    assert row.fault_coverage
    (bucket,) = row.kept
    assert row.buckets[bucket.name] >= 1
    assert row.failures == sum(row.buckets.values())
    assert (tmp_path / bucket.page).is_file()

    (saved,) = (s for s in corpus.simulated(tmp_path) if s.file.startswith(str(tmp_path)))
    assert saved.schedule == load(tmp_path / bucket.schedule)
    again = jobs.do(ReplayJob(key="replay/0", file=saved.file))
    assert isinstance(again, Replayed)
    assert again.met
    assert again.verdict == "invalid"

    # The next nightly run knows it: counted, and not shrunk again.
    same = Budget(schedules=row.schedules)
    second = jobs.do(msgspec.structs.replace(search, known=tuple(row.buckets), budget=same))
    assert isinstance(second, Searched)
    assert (second.buckets, second.kept) == (row.buckets, [])


@pytest.mark.parametrize(("broken", "forms"), [(LOST, 1), (INTERNAL, 0)])
def test_a_failure_that_clients_see_gets_a_form_for_real_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, forms: int
) -> None:
    def slow_form(finding: Finding, folder: Path, *, runs: int) -> None:
        (folder / REAL).write_bytes(slow_motion(finding.smallest).to_pretty_json())

    monkeypatch.setattr(corpus, "save_real_schedule", slow_form)
    schedule, bucket = bitten()[0]
    finding = Finding(
        bucket=bucket,
        property=broken,
        sentence="lost",
        schedule=schedule,
        smallest=schedule,
        schedules_before=1,
        seconds_before=1.0,
        shrink_tries=1,
    )
    corpus.keep(finding, tmp_path, print, with_page=False)
    made = [s.schedule for s in corpus.real(tmp_path) if s.file.startswith(str(tmp_path))]
    assert made == [slow_motion(schedule)] * forms


@pytest.mark.integration
def test_jobs_whose_process_fails_or_takes_too_long_are_lost(tmp_path: Path) -> None:
    """Each job has a process of its own, and its own way to end."""
    wanted = [
        KnownBugJob(key="known-bug/0", code="no such known bug", seed=1, seconds=1.0),
        DeterminismJob(key="determinism/0", protocol="kafka", seed=3, runs=1),
        DeterminismJob(key="determinism/0", protocol="kafka", seed=3, runs=1),
    ]
    done = list(side_by_side(wanted, tmp_path / "out.txt", 0.0, lambda: False))
    (failed,) = (one for one in done if one.result is None)
    assert failed.job.key == "known-bug/0"
    assert failed.sentence.startswith("StopIteration")
    first, second = (one.result for one in done if isinstance(one.result, Digests))
    assert jobs.compared(wanted[1], first, second).differing == []
    endless = msgspec.structs.replace(wanted[1], runs=1 << 30)
    (late,) = side_by_side([endless], tmp_path / "out.txt", -1.0, lambda: False)
    assert late.result is None
    assert late.sentence.startswith("its process ended with ")
    assert list(side_by_side(wanted, tmp_path / "out.txt", 300.0, lambda: True)) == []


def test_a_fault_is_counted_by_the_roles_and_the_isr_at_its_moment() -> None:
    log = {"partition": "log-0"}

    def role(t_us: int, node: str, name: str, epoch: int) -> dict[str, object]:
        head = {"t_us": t_us, "node": node, "event": "role", "role": name, "leader_epoch": epoch}
        return {**head, **log, "leo": 0, "hw": 0}

    def partition(t_us: int, leader: str, epoch: int, isr: list[str]) -> dict[str, object]:
        head = {"t_us": t_us, "node": "v1", "event": "partition", "leader": leader, "isr": isr}
        epochs = {"leader_epoch": epoch, "partition_epoch": epoch}
        return {**head, **log, **epochs, "elr": [], "replicas": ["n1", "n2", "n3"]}

    trace = [
        {"t_us": 1, "node": "v1", "event": "controller", "state": "active", "term": 1},
        partition(2, "n1", 1, ["n1", "n2", "n3"]),
        role(3, "n1", "leader", 1),
        *(role(3, node, "follower", 1) for node in ("n2", "n3")),
        partition(30, "n1", 2, ["n1", "n2"]),
        partition(60, "n2", 3, ["n2"]),
        role(61, "n2", "leader", 3),
    ]
    told: list[tuple[int, str, Action, tuple[str, ...]]] = [
        (10, "pause", "inject", ("n3",)),
        (20, "pause", "heal", ("n3",)),
        (40, "cut", "inject", ("n1", "n3")),
        (50, "kill", "inject", ("n1",)),
        (55, "delay", "inject", ("v1",)),
        (70, "reassign", "inject", ()),
    ]
    faults = [FaultLine(t_us=t, fault=0, what=w, action=a, nodes=n) for t, w, a, n in told]
    assert fault_coverage(trace, faults) == {
        "pause/follower/in-sync": 1,
        "cut/leader/isr-short": 1,
        "cut/lagging/isr-short": 1,
        "kill/leader/isr-short": 1,
        "delay/controller/leaderless": 1,
        "reassign/none/isr-short": 1,
    }


@pytest.mark.nightly
def test_a_small_nightly_run_on_real_processes(tmp_path: Path) -> None:
    """Use real workers, brokers, Spark and pages, and compare the exit code."""
    store = tmp_path / "store"
    command = [sys.executable, "-m", "harness.cli", "nightly", "--store", str(store)]
    done = subprocess.run(
        [*command, "--budget", "150s", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    ((nightly,), unread) = nightly_runs(store)
    assert unread == []
    # So short a run has no storm of some protocols: it says so, and is not green.
    assert done.returncode == (1 if nightly.red else 2 if nightly.uncovered else 0), done.stderr
    assert nightly.state == "finished"
    assert nightly.canary.result == "failed"
    assert nightly.totals.schedules > 0
    assert nightly.differing == []
    assert done.stdout.startswith(("✓ GREEN", "✗ RED", "? OPEN"))
    assert (store / "index.html").read_text().count("<section") == 5
