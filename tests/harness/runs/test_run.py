"""The course of a run over a cluster made of nothing: phases, faults, and what goes wrong."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.formats import seal
from harness.formats.problem import Problem, node_ended
from harness.runs import run, run_folder, storm
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.progress import Progress, ProgressState, leaders_in_words
from harness.runs.run import Run, RunSettings
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule, Send, Timings, Workload
from node.formats.errors import FloodmarkError, StorageError
from tests.support.harness_fakes import FakeCluster, FakeSystem, VirtualTime, virtual_time

ALL_PHASES = ["go", "healed", "stop_writing", "read_everything", "close"]
BRIEF = Workload(clients=1, consumers=1, duration_ms=60)
TIMINGS = Timings(heartbeat_ms=1, session_ms=20, lag_ms=1)
PLAIN = Schedule(cluster=Cluster(timings=TIMINGS), workload=BRIEF)
LONG = replace(PLAIN, workload=replace(BRIEF, duration_ms=600_000))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """The one of the run, of its pace and of its cluster."""
    return virtual_time(monkeypatch)


def execute(
    tmp_path: Path,
    schedule: Schedule = PLAIN,
    prepare: Callable[[FakeCluster], None] = lambda cluster: None,
    interrupts: Interrupts | None = None,
    **clients: Any,
) -> tuple[FakeCluster, dict[str, Any], list[dict[str, Any]]]:
    """Run a schedule with clients that have these fields; gives the cluster, run.json and the
    lines of faults.jsonl."""

    def prepared(cluster: FakeCluster) -> None:
        vars(cluster.made).update(clients)
        prepare(cluster)

    system = FakeSystem(prepared)
    run = Run(
        schedule,
        RunSettings(name="x", seed=1, store=tmp_path),
        system,
        progress=Progress(quiet=True),
        interrupts=interrupts or Interrupts(),
    )
    made = system.made
    try:
        run.execute()
    except (FloodmarkError, StopNow) as error:
        made[0].problems.append(Problem(kind="phase-failed", sentence=f"raised {error!r}"))
    info = json.loads((run.folder.path / "run.json").read_text())
    faults = [json.loads(line) for line in (run.folder.path / "faults.jsonl").open()]
    assert made[0].closed
    return made[0], info, faults


def kinds_of(info: dict[str, Any]) -> list[str]:
    return [problem["kind"] for problem in info["problems"]]


def test_the_phases_come_in_order_and_are_written_down(tmp_path: Path) -> None:
    cluster, info, _ = execute(tmp_path)
    assert (cluster.made.calls, cluster.stopped) == (ALL_PHASES, True)
    phases = info["phases"]
    assert phases.pop("in_sync_us") >= phases["heal_us"]
    assert phases.pop("alike_us") == 0, "this cluster says nothing of its logs"
    assert list(phases) == [
        *("start_us", "storm_us", "heal_us", "recovered_us"),
        *("stop_writing_us", "final_us", "end_us"),
    ]
    assert list(phases.values()) == sorted(phases.values())
    assert phases["start_us"] > 0
    assert phases["heal_us"] - phases["storm_us"] >= 60_000
    assert (info["state"], info["problems"]) == ("finished", [])
    assert info["partitions"]["log-0"] == ["n1", "n2", "n3"]
    assert info["clients"]["c1"] == "producer"
    assert info["schedule_digest"] == PLAIN.digest()
    told = {"version": FakeSystem().version(), "simulated": True, "settings": {"curve": "on"}}
    assert info["system"] == {"name": "floodmark", **told, "links": "hub", "disk": "journal"}
    assert info["replay"] == f"floodmark run --schedule {tmp_path}/{info['run']}"
    assert info["recovery_limit_ms"] == 2061


@pytest.mark.parametrize("asleep_s", [0.0, 10.0], ids=["on time", "late, without a processor"])
def test_faults_happen_are_recorded_and_healed(
    tmp_path: Path, clock: VirtualTime, asleep_s: float
) -> None:
    clock.asleep_s = asleep_s
    for_ms, never_ms = (20, 60) if asleep_s else (None, 9_000)
    faults = (Kill(on="n2", at_ms=10, for_ms=for_ms), Kill(on="n3", at_ms=never_ms))
    cluster, _, lines = execute(tmp_path, replace(PLAIN, faults=faults))
    assert cluster.world.done == ["kill n2", "start n2"]
    actions = [(0, "inject"), (1, "missed"), (0, "heal"), (-1, "heal")]
    assert [(line["fault"], line["action"]) for line in lines] == actions


def test_the_storm_waits_until_the_clients_can_speak(tmp_path: Path) -> None:
    seen: list[int] = []

    def prepare(cluster: FakeCluster) -> None:
        clients = cluster.made
        vars(clients)["go"] = lambda: seen.append(clients.looks_until_ready)

    execute(tmp_path, prepare=prepare, looks_until_ready=20)
    assert seen[0] < 0


def test_without_recovery_the_run_goes_on_after_the_limit(tmp_path: Path) -> None:
    cluster, info, _ = execute(tmp_path, recovers=False)
    assert cluster.made.calls == ALL_PHASES
    assert info["phases"]["recovered_us"] == 0
    assert info["phases"]["stop_writing_us"] - info["phases"]["heal_us"] >= 2_061_000


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FloodmarkError("port 1 is taken"), "raised FloodmarkError('port 1 is taken')"),
        (FileNotFoundError(2, "No such file"), "look after the disk of --store"),
    ],
)
def test_a_cluster_that_does_not_start_is_an_error_and_on_record(
    tmp_path: Path, error: Exception, sentence: str
) -> None:
    def start() -> None:
        raise error

    def prepare(cluster: FakeCluster) -> None:
        vars(cluster)["start"] = start

    cluster, info, _ = execute(tmp_path, prepare=prepare)
    assert sentence in cluster.problems[0].sentence
    assert kinds_of(info) == ["not-started"]
    assert cluster.made.calls == []


@pytest.mark.parametrize("kind", ["clients-ended", "node-ended"])
def test_a_part_that_ends_in_the_storm_ends_it_and_all_is_collected(
    tmp_path: Path, kind: str
) -> None:
    def prepare(cluster: FakeCluster) -> None:
        if kind == "node-ended":
            cluster.problems.append(node_ended("n1", -9))
        else:
            cluster.made.problem = "history.jsonl: the disk is full"

    cluster, info, _ = execute(tmp_path, LONG, prepare)
    assert (cluster.made.calls, cluster.stopped) == (ALL_PHASES, True)
    assert kinds_of(info) == [kind]
    info["phases"].pop("alike_us")
    assert 0 not in info["phases"].values(), "it recovered and all was read"


def test_what_breaks_during_the_storm_is_a_problem_and_the_rest_is_tried(tmp_path: Path) -> None:
    def prepare(cluster: FakeCluster) -> None:
        cluster.fail_poll = "the traces cannot be read"

    cluster, info, _ = execute(tmp_path, prepare=prepare)
    assert cluster.made.calls == ALL_PHASES
    assert info["problems"] == [{"kind": "phase-failed", "sentence": "the traces cannot be read"}]
    assert info["state"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("due_ms", [5, 500_000])
def test_an_interrupted_storm_is_never_finished(tmp_path: Path, number: int, due_ms: int) -> None:
    """Faults may be left to come, or all be over."""
    faults = (Kill(on="n1", at_ms=5), Kill(on="n2", at_ms=due_ms))
    with Interrupts() as interrupts:

        def prepare(cluster: FakeCluster) -> None:
            polled = 0

            def poll() -> list[dict[str, Any]]:
                # The faults that are due are carried out before the next look.
                nonlocal polled
                done = [each for each in cluster.world.done if each.startswith("kill")]
                polled += len(done) == (2 if due_ms == 5 else 1)
                if polled == 2:
                    signal.raise_signal(number)
                return []

            vars(cluster)["poll"] = poll

        cluster, info, lines = execute(
            tmp_path, replace(LONG, faults=faults), prepare, interrupts, recovers=False
        )
    assert (info["state"], kinds_of(info)) == ("interrupted", ["interrupted"])
    assert (cluster.made.calls, cluster.stopped) == (ALL_PHASES, True)
    assert lines[-1]["action"] == "heal"


@pytest.mark.parametrize(
    ("phase", "recovers", "problems"),
    [("healed", False, ["interrupted"]), ("stop_writing", True, []), ("read_everything", True, [])],
)
def test_an_interrupt_counts_until_the_recovery_is_over(
    tmp_path: Path, phase: str, recovers: bool, problems: list[str]
) -> None:
    """What follows the recovery takes place all the same, so such a run is whole."""
    with Interrupts() as interrupts:

        def prepare(cluster: FakeCluster) -> None:
            act = getattr(cluster.made, phase)

            def interrupted(*arguments: Any) -> None:
                act(*arguments)
                signal.raise_signal(signal.SIGINT)

            setattr(cluster.made, phase, interrupted)

        _, info, _ = execute(tmp_path, PLAIN, prepare, interrupts, recovers=recovers)
    assert info["state"] == ("interrupted" if problems else "finished")
    assert kinds_of(info) == problems
    assert info["phases"]["end_us"]


@pytest.mark.parametrize(
    ("clients", "waits_s", "kinds"),
    [
        ({"recovers": False}, 5.0, ["too-busy"]),
        ({"recovers": False}, 0.1, []),
        ({"answers": False}, 5.0, ["too-busy"]),
        ({"answers": False}, 0.1, []),
        ({}, 5.0, []),
    ],
)
def test_a_phase_that_fails_on_a_busy_machine_proves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clients: dict[str, bool],
    waits_s: float,
    kinds: list[str],
) -> None:
    looks = iter(range(100))
    monkeypatch.setattr(run, "waited", lambda output: {7: waits_s * next(looks)})
    _, info, _ = execute(tmp_path, **clients)
    assert kinds_of(info) == kinds
    of_reads = "to judge the final reads" in json.dumps(info["problems"])
    assert of_reads is (bool(kinds) and "answers" in clients)


def test_a_node_that_is_ended_after_the_heal_is_started_once(tmp_path: Path) -> None:
    def prepare(cluster: FakeCluster) -> None:
        healed = cluster.made.healed

        def ended(t_us: int) -> None:
            healed(t_us)
            cluster.world.kill("n1")
            cluster.problems.append(node_ended("n1", -9))

        def poll() -> list[dict[str, Any]]:
            # The second end is that of the new process, which nothing starts again.
            if cluster.world.done.count("start n1") == 1 and cluster.world.is_up("n1"):
                cluster.world.kill("n1")
            return []

        vars(cluster.made)["healed"], vars(cluster)["poll"] = ended, poll

    cluster, info, _ = execute(tmp_path, prepare=prepare)
    assert cluster.world.done.count("start n1") == 1
    assert kinds_of(info) == ["node-ended"]


def test_a_run_on_a_disk_that_fills_up_still_says_that_it_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last run.json and the seal go to space that was taken at the beginning."""
    write, full = seal.write_whole, list[bool]()

    def write_unless_full(path: Path, content: bytes) -> None:
        if full and list(tmp_path.rglob(".reserve")):
            raise StorageError(f"{path}: the disk is full")
        write(path, content)

    for module in (seal, run_folder):
        monkeypatch.setattr(module, "write_whole", write_unless_full)
    _, info, _ = execute(tmp_path, go=lambda: full.append(True))
    assert info["state"] == "finished"
    assert set(kinds_of(info)) == {"not-saved"}
    assert info["seal"]


def test_the_second_ctrl_c_ends_everything(tmp_path: Path) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)

    with Interrupts() as interrupts:
        cluster, info, _ = execute(tmp_path, interrupts=interrupts, go=twice)
    assert cluster.problems[-1].sentence == "raised StopNow()"
    assert kinds_of(info) == ["interrupted"]
    assert cluster.made.calls == ["close"]
    assert not cluster.stopped
    assert info["state"] == "interrupted"


def test_progress_in_a_log_is_plain_lines_and_quiet_is_silent() -> None:
    said, nothing = io.StringIO(), io.StringIO()
    with Progress(stream=said) as loud, Progress(stream=nothing, quiet=True) as quiet:
        for progress in (loud, quiet):
            progress.phase("storm", 30)
            progress.show(ProgressState(acked=5, leaders=("n1", "")))
            progress.note("a [bracketed] note")
    assert said.getvalue() == "storm ...\na [bracketed] note\n"
    assert nothing.getvalue() == ""


def test_many_leaders_are_counted() -> None:
    assert leaders_in_words(("n1", "", "n2")) == "n1 - n2"
    assert leaders_in_words(("n1",) * 6 + ("",) + ("n2",) * 4) == "-×1 n1×6 n2×4"


@pytest.mark.parametrize("alike", [False, True])
def test_nobody_waits_for_replicas_that_are_known_to_be_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alike: bool
) -> None:
    monkeypatch.setattr(storm, "CATCH_UP_S", 0.01)

    def say_what_they_have(cluster: FakeCluster) -> None:
        rest = {"base_offset": 0, "leo": 1, "leader_epoch": 1, "role": "leader"}
        for name, nodes in cluster.partitions.items():
            for node in nodes:
                log = {"hash": "aa" if alike else node, "partition": name, **rest}
                cluster.view.observe({"event": "append", "node": node, **log})

    _, info, _ = execute(tmp_path, prepare=say_what_they_have)
    phases = info["phases"]
    assert (phases["alike_us"] > 0) == alike
    assert (phases["end_us"] - phases["final_us"] < 10_000) == alike


def test_a_scripted_storm_is_over_when_all_of_it_is_done(tmp_path: Path) -> None:
    hour = 3_600_000
    script = Workload(
        clients=0,
        consumers=0,
        duration_ms=hour,
        operations=(Send(client="c1", at_ms=5), Send(client="c1", at_ms=15)),
    )
    faults = (Kill(at_ms=10, on="n1", for_ms=10),)
    schedule = Schedule(cluster=Cluster(timings=TIMINGS), workload=script, faults=faults)
    cluster, info, _ = execute(tmp_path, schedule)
    assert cluster.world.done == ["operate 0", "kill n1", "operate 1", "start n1"]
    phases = info["phases"]
    assert phases["heal_us"] - phases["storm_us"] < hour * 1000
    assert phases["recovered_us"] == 0
    assert phases["in_sync_us"] > 0
