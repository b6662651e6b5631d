"""Golden stories: liveness, and whether a run proved anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats.verdict import RunResult, Verdict
from harness.formats.history import OpType
from tests.support.checker.story import NODES, Story, against, one


def exercise(result: RunResult) -> set[str]:
    """What made a run not exercised."""
    return {a.name for a in result.anomalies if a.verdict is Verdict.NOT_EXERCISED}


def healed() -> Story:
    """A run whose faults were healed 100 ms into the storm; recovery may take 2 s."""
    s = Story()
    s.phase("heal", 100)
    s.phase("end", 5_000)
    return s


def test_progress_within_the_limit(tmp_path: Path) -> None:
    s = healed()
    s.send(10, outcome="info", begin=200, end=300)
    s.send(11, at=0, begin=300, end=2_100, process=2)
    assert against(s.check(tmp_path)) == {}


def test_progress_too_late(tmp_path: Path) -> None:
    s = healed()
    s.send(11, at=0, begin=300, end=2_101)
    found = one(s.check(tmp_path), "no-progress")
    assert "the first acknowledgement came 2.001 s after the heal" in found.message


def test_no_progress_at_all(tmp_path: Path) -> None:
    s = healed()
    s.send(11, begin=300, end=3_000, outcome="info")
    assert "none of 1 send after the heal" in one(s.check(tmp_path), "no-progress").message


def test_a_partition_nobody_wrote_to_owes_no_progress(tmp_path: Path) -> None:
    s = healed()
    s.send(10, at=0, begin=10, end=20)
    assert against(s.check(tmp_path)) == {}


def test_progress_that_was_not_waited_for_is_unknown(tmp_path: Path) -> None:
    s = healed()
    s.send(11, begin=300, end=400, outcome="info")
    s.phase("end", 1_000)
    result = s.check(tmp_path)
    assert against(result) == {}
    liveness = next(p for p in result.properties if p.property == "liveness")
    assert liveness.verdict is Verdict.UNKNOWN
    assert "0.9 s of the 2 s" in liveness.reason


@pytest.mark.parametrize(
    ("begin", "stop", "end", "known"),
    [(2_100, 0, 200, True), (2_099, 0, 200, False), (300, 2_100, 0, True), (300, 0, 2_100, True)],
)
def test_watched_until_the_limit(
    tmp_path: Path, begin: int, stop: int, end: int, known: bool
) -> None:
    """Whatever was last, a send invoked, the end of writing or of the run, came after the limit."""
    s = healed()
    s.phase("end", end)
    s.phase("stop_writing", stop)
    s.send(10, begin=250, end=260, outcome="info")
    s.send(11, begin=begin, end=begin + 1_000, outcome="info", process=2)
    assert against(s.check(tmp_path)) == ({"no-progress": 2} if known else {})


def test_an_interrupted_run_owes_no_convergence(tmp_path: Path) -> None:
    s = healed()
    s.send(10, at=0, begin=200, end=300)
    logs = ((10, 1),), ((10, 1),), ()
    for node, log in zip(NODES, logs, strict=True):
        s.log(node, *log, hw=0)
    s.run["state"] = "interrupted"
    assert against(s.check(tmp_path / "interrupted")) == {}
    s.run["state"] = "finished"
    assert against(s.check(tmp_path / "finished")) == {"not-converged": 1}


def test_final_reads_that_are_never_answered(tmp_path: Path) -> None:
    s = healed()
    s.send(10, at=0, begin=200, end=300)
    s.phase("final", 1_000)
    s.poll(process=99, final=True, outcome="info", begin=1_000, end=4_000)
    s.agree((10, 1))
    assert set(against(s.check(tmp_path))) == {"final-reads-stuck", "unseen"}


def test_replicas_that_do_not_converge(tmp_path: Path) -> None:
    s = healed()
    s.send(10, at=0, begin=200, end=300)
    s.send(11, at=1, begin=300, end=400)
    s.agree((10, 1), (11, 1))
    assert against(s.check(tmp_path / "equal")) == {}
    s.logs["n3"].pop()
    s.logs["n3"].clear()
    s.log("n3", (10, 1))
    found = one(s.check(tmp_path / "behind"), "not-converged")
    assert "n1 at 2, n2 at 2, n3 at 1" in found.message


def test_exits(tmp_path: Path) -> None:
    s = Story()
    killed = {"node": "n1", "incarnation": 1, "t_us": 1_200_000, "code": -9, "by": "kill"}
    s.exits = [{**killed, "expected": True}]
    assert against(s.check(tmp_path / "asked-for")) == {}
    s.exits.append({**killed, "node": "n2", "code": 70, "by": "itself", "expected": False})
    found = one(s.check(tmp_path / "by-itself"), "unexplained-exit")
    assert "n2 ended by itself with code 70 0.200 s into the storm" in found.message


def test_few_acknowledgements_prove_nothing(tmp_path: Path) -> None:
    s = Story()
    s.busy(9)
    s.final((0, 1_000_000, 9))
    result = s.check(tmp_path / "nine")
    assert exercise(result) == {"few-acks"}
    assert result.verdict is Verdict.NOT_EXERCISED
    s.busy(1, first=5, partition="log-1", process=3)
    s.final((0, 5), partition="log-1")
    assert s.check(tmp_path / "ten").verdict is Verdict.VALID


def test_clients_that_stopped(tmp_path: Path) -> None:
    s = Story()
    s.busy()
    s.send(5, at=12, begin=500, end=501)
    s.phase("heal", 900)
    assert exercise(s.check(tmp_path / "stopped")) == {"clients-stopped"}
    s.send(6, at=13, begin=300, end=301, process=2)
    s.send(7, at=14, begin=750, end=751, process=2)
    assert exercise(s.check(tmp_path / "kept-on")) == set()


def faulty(*, drawn: bool = False) -> Story:
    """Two faults in the schedule, with sends before, between and after them."""
    s = Story()
    s.schedule = {"drawn": drawn, "faults": [{"what": "kill"}, {"what": "isolate"}]}
    for i in range(12):
        s.send(100 + i, at=i, begin=i * 10, end=i * 10 + 1)
    s.final((0, 100, 12))
    return s


def test_faults_that_struck(tmp_path: Path) -> None:
    s = faulty()
    s.fault(0, "kill", "inject", 15)
    s.fault(1, "isolate", "inject", 25)
    s.fault(1, "isolate", "effect", 45, dropped=7)
    s.fault(-1, "heal", "heal", 50)
    result = s.check(tmp_path)
    assert result.verdict is Verdict.VALID
    assert result.measures["faults"] == 2


def test_a_fault_of_a_file_that_was_missed(tmp_path: Path) -> None:
    s = faulty()
    s.fault(0, "kill", "inject", 15)
    s.fault(1, "isolate", "missed", 25, detail="its trigger never came")
    found = one(s.check(tmp_path), "fault-missed")
    assert "fault 1 (isolate) missed (isolate its trigger never came)" in found.message


def test_a_fault_that_was_never_reached(tmp_path: Path) -> None:
    s = faulty()
    s.fault(0, "kill", "inject", 15)
    assert "fault 1 (isolate) was never reached" in one(s.check(tmp_path), "fault-missed").message


def test_a_cut_that_touched_no_message(tmp_path: Path) -> None:
    s = faulty()
    s.fault(0, "kill", "inject", 15)
    s.fault(1, "isolate", "inject", 25)
    s.fault(1, "isolate", "effect", 45, dropped=0, delayed=0)
    assert "had no effect" in one(s.check(tmp_path), "fault-missed").message


def test_a_fault_with_no_acknowledgement_on_one_side(tmp_path: Path) -> None:
    s = faulty()
    s.fault(0, "kill", "inject", 0.5)
    s.fault(1, "isolate", "inject", 500)
    found = one(s.check(tmp_path), "fault-missed")
    assert found.count == 2
    assert "took effect before anything was acknowledged" in found.message


def test_a_cut_that_touched_a_message_at_last(tmp_path: Path) -> None:
    s = faulty()
    s.fault(0, "kill", "inject", 15)
    s.fault(1, "isolate", "inject", 25)
    s.fault(1, "isolate", "effect", 35)
    s.fault(1, "isolate", "effect", 45, delayed=1)
    assert exercise(s.check(tmp_path)) == set()


def test_an_acknowledgement_at_the_very_time_of_a_fault_came_before_it(tmp_path: Path) -> None:
    s = faulty()
    s.fault(0, "kill", "inject", 1)
    s.fault(1, "isolate", "inject", 111)
    found = one(s.check(tmp_path / "last"), "fault-missed")
    assert "fault 1 (isolate) was followed by no acknowledgement" in found.message
    s.faults[1]["t_us"] -= 500
    assert exercise(s.check(tmp_path / "under way")) == set()


def test_the_sentence_counts_what_was_acknowledged_and_what_struck(tmp_path: Path) -> None:
    """One of the drawn faults met no message, and a send of unknown outcome was read: the verdict
    counts neither, as the summary does not."""
    s = faulty(drawn=True)
    s.send(500, at=12, outcome="info", process=9)
    s.poll((12, 500), start=12, process=10, final=True)
    s.fault(0, "kill", "inject", 15)
    s.fault(1, "isolate", "inject", 25)
    s.fault(1, "isolate", "effect", 45, dropped=0, delayed=0)
    result = s.check(tmp_path)
    assert result.sentence.startswith(
        "valid: 12 acknowledged records in 1 partition outlived 1 fault,"
    )


def test_half_of_the_drawn_faults_are_enough(tmp_path: Path) -> None:
    s = faulty(drawn=True)
    s.fault(0, "kill", "inject", 15)
    s.fault(1, "isolate", "skipped", 25)
    assert exercise(s.check(tmp_path / "half")) == set()
    s.faults.clear()
    s.fault(0, "kill", "skipped", 15)
    s.fault(1, "isolate", "skipped", 25)
    assert exercise(s.check(tmp_path / "none")) == {"few-faults"}


def test_an_anomaly_outweighs_a_lack_of_exercise(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((1, 20))
    result = s.check(tmp_path)
    assert exercise(result) == {"few-acks"}
    assert result.verdict is Verdict.INVALID
    assert result.sentence.startswith("invalid: 1 acknowledged record of log-0 lost")


def _script(*outcomes: OpType | None, must: str = "ok") -> Story:
    """A run whose clients do single operations only, with these ends, and one fault at once."""
    s = Story()
    s.schedule = {
        "faults": [{"what": "break"}],
        "workload": {
            "clients": 0,
            "consumers": 0,
            "operations": [{"what": "send", "must": must} for _ in range(2)],
        },
    }
    s.fault(0, "break", "inject", 0)
    s.fault(0, "break", "effect", 400, stopped=1)
    for step, outcome in enumerate(outcomes):
        s.send(10 + step, at=step, outcome=outcome, step=step)
    s.phase("heal")
    s.agree(*((10 + step, 1) for step in range(len(outcomes))))
    return s


def test_a_script_is_exercised_when_all_of_it_took_place(tmp_path: Path) -> None:
    assert _script("ok", "ok").check(tmp_path).verdict is Verdict.VALID


def test_a_script_of_which_a_part_never_began(tmp_path: Path) -> None:
    result = _script("ok").check(tmp_path)
    assert result.verdict is Verdict.NOT_EXERCISED
    assert "operation 1 (send) was never begun" in one(result, "operation-missed").message


def test_a_script_whose_send_was_not_answered(tmp_path: Path) -> None:
    result = _script("ok", "info").check(tmp_path / "must")
    assert "operation 1 (send) was not answered" in one(result, "operation-missed").message
    assert _script("ok", "info", must="any").check(tmp_path / "may").verdict is Verdict.VALID


def test_a_breakpoint_that_no_process_came_to(tmp_path: Path) -> None:
    s = _script("ok", "ok")
    s.faults[-1]["stopped"] = 0
    assert "fault 0 (break) had no effect" in one(s.check(tmp_path), "fault-missed").message


def test_the_storm_is_what_silence_is_sought_in(tmp_path: Path) -> None:
    """Not the time before it, whoever was busy then; one that never began has no silence."""
    s = Story()
    s.busy()
    s.send(5, at=12, begin=-500, end=10, process=2)
    s.send(6, at=13, begin=300, end=301, process=3)
    s.send(7, at=14, begin=600, end=1_200, process=4)
    s.phase("heal", 900)
    assert exercise(s.check(tmp_path / "busy")) == set()
    s.history = [op for op in s.history if op.process != 4]
    assert exercise(s.check(tmp_path / "silent")) == {"clients-stopped"}
    s.run["phases"]["storm_us"] = 0
    s.phase("heal", 9_000)
    assert exercise(s.check(tmp_path / "no storm")) == set()


def test_nothing_is_owed_by_a_run_that_was_never_healed(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0, begin=1_500, end=1_600)
    s.send(11, outcome="info", begin=1_500, end=1_600, process=2)
    s.phase("end", 9_000)
    s.log("n1", (10, 1), (11, 1), hw=1)
    s.log("n2", (10, 1))
    s.log("n3", (10, 1))
    assert against(s.check(tmp_path)) == {}


def test_sends_that_nothing_acknowledges_show_no_lack_of_progress(tmp_path: Path) -> None:
    s = healed()
    s.run["promise"] |= {"acks": 0, "durable_acks": False}
    s.send(10, begin=300, end=301, outcome="info", acks=0)
    s.phase("end", 9_000)
    assert against(s.check(tmp_path)) == {}


@pytest.mark.parametrize(
    ("begin", "end", "ok", "again", "found"),
    [
        (100, 9_000, False, False, 0),  # invoked as it was healed, nothing after it
        (50, 2_500, True, False, 0),  # acknowledged late, but nothing was sent after the heal
        (50, 99, True, True, 1),  # an acknowledgement before the heal is none after it
        (50, 100, True, True, 1),
        (50, 101, True, True, 0),  # one after the heal counts, whenever it was sent
    ],
)
def test_which_acknowledgements_show_progress(
    tmp_path: Path, begin: int, end: int, ok: bool, again: bool, found: int
) -> None:
    s = healed()
    s.send(10, begin=begin, end=end, outcome="ok" if ok else "info")
    if again:
        s.send(11, begin=300, end=301, outcome="info", process=2)
    s.phase("end", 9_000)
    assert against(s.check(tmp_path)) == ({"no-progress": 1} if found else {})


@pytest.mark.parametrize(
    ("stop", "end", "due"),
    [(4_500, 5_499, False), (4_500, 5_500, True), (0, 2_099, False), (0, 2_100, True)],
)
def test_when_convergence_is_due(tmp_path: Path, stop: int, end: int, due: bool) -> None:
    """A second after the last write, and when the recovery limit is over."""
    s = healed()
    s.send(10, at=0, begin=200, end=300)
    s.send(11, outcome="info", begin=300, end=400)
    for node, log in zip(NODES, (((10, 1), (11, 1)), ((10, 1),), ((10, 1),)), strict=True):
        s.log(node, *log, hw=1)
    s.run["phases"]["stop_writing_us"] = 0
    if stop:
        s.phase("stop_writing", stop)
    s.phase("end", end)
    assert against(s.check(tmp_path)) == ({"not-converged": 2} if due else {})


@pytest.mark.parametrize(("alike", "behind"), [(0, 0), (4_550, 2), (4_700, 0)])
def test_replicas_that_were_alike_are_alike_in_the_end(
    tmp_path: Path, alike: int, behind: int
) -> None:
    s = healed()
    s.send(10, at=0, begin=200, end=300)
    s.send(11, outcome="info", begin=300, end=400)
    for node, log in zip(NODES, (((10, 1), (11, 1)), ((10, 1),), ((10, 1),)), strict=True):
        s.log(node, *log, hw=1)
    s.phase("stop_writing", 4_500)
    if alike:
        s.phase("alike", alike)
    s.phase("end", 4_600)
    assert against(s.check(tmp_path)) == ({"not-converged": behind} if behind else {})


@pytest.mark.parametrize(("traces", "behind"), [(True, 2), (False, 0)])
def test_who_is_in_sync_is_proven_by_traces_only(tmp_path: Path, traces: bool, behind: int) -> None:
    """Another system may call a replica in sync that still copies what is missing."""
    s = healed()
    s.run["capabilities"] = ["logs", *(["trace"] if traces else [])]
    s.send(10, at=0, begin=200, end=300)
    s.send(11, outcome="info", begin=300, end=400)
    for node, log in zip(NODES, (((10, 1), (11, 1)), ((10, 1),), ((10, 1),)), strict=True):
        s.log(node, *log, hw=1)
    s.phase("in_sync", 350)
    s.phase("stop_writing", 400)
    s.phase("end", 1_450)
    found = {name: n for name, n in against(s.check(tmp_path)).items() if name == "not-converged"}
    assert found == ({"not-converged": behind} if behind else {})
