"""Whole runs of a system of a test, and every way in which an adapter can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.runs.run_folder import RunDir
from harness.systems import registry
from harness.systems.external import cluster, logs
from harness.systems.setup import setup_of
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.support import trial_adapters
from tests.support.command import exit_code
from tests.support.patience import brief, patient, played
from tests.support.running_harness import lines

FILE = Path(trial_adapters.__file__)
TRIAL = f"{trial_adapters.__name__}:Trial"
QUIET = "--no-spark --no-report --quiet --json"
SHORT = "--partitions 1 --replication-factor 1 --time-limit 1 --faults none"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for patch in (brief, patient, played):
        patch(monkeypatch)


class Ran:
    """The result and the output of a run."""

    def __init__(self, code: int, told: str, error: str) -> None:
        self.code = code
        self.error = error.strip()
        self.result: dict[str, Any] = json.loads(told)["result"] if told else {}
        latest = sorted(Path("store").glob("*/*/run.json"))
        self.folder = latest[0].parent if latest else Path()
        self.info = json.loads((self.folder / "run.json").read_text()) if latest else {}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Ran:
    code = exit_code(["run", *words, *QUIET.split()])
    said = capsys.readouterr()
    return Ran(code, said.out, said.err)


def schedule_of(what: str, **more: object) -> str:
    """Write a schedule with one fault on n1, once it has some records."""
    after = {"event": "role", "match": {"leader_epoch": {"at_least": 2}}}
    fault = {"what": what, "on": "n1", "after": after, "for_ms": 100, **more}
    whole = {
        "floodmark_schedule": 1,
        "cluster": {"partitions": 1, "replication_factor": 1, "min_isr": 1},
        "workload": {"batch": 1, "rate": 20, "seed": 1, "duration_ms": 100_000},
        "faults": [fault],
    }
    Path("schedule.json").write_text(json.dumps(whole))
    return "schedule.json"


@pytest.mark.integration
def test_a_file_with_an_adapter_is_stormed(capsys: pytest.CaptureFixture[str]) -> None:
    place = f"{FILE}:Trial"
    schedule = schedule_of("kill")
    ran = run(capsys, "--system", place, "--set", "speed=slow", "--schedule", schedule)
    assert (ran.result["verdict"], ran.code) == ("valid", 0), ran.result["sentence"]
    assert ran.info["system"] == {
        "name": place,
        "version": "1.0",
        "simulated": False,
        "settings": {"broken": "", "speed": "slow"},
        "servers": {},
        "links": "proxy",
        "disk": "plain",
    }
    assert (ran.info["protocol"], ran.info["voters"]) == ("Trial", [])
    assert ran.info["promise"]["words"] == "nothing is ever lost"
    assert ran.info["promise"]["disks_kept"]
    assert f"--system {place} --set speed=slow --schedule" in ran.info["replay"]
    # One node has the log; it was killed and came back. The others have none.
    kept = lines(ran.folder / "logs/n1.jsonl")
    assert sum(line["count"] for line in kept) >= trial_adapters.ENOUGH
    assert (ran.folder / "logs/n2.jsonl").read_text().count("\n") == 1
    exits = lines(ran.folder / "exits.jsonl")
    assert [one["by"] for one in exits] == ["kill", "stop", "stop", "stop"]


@pytest.mark.integration
def test_voters_start_first_and_stop_last_and_faults_reach_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    system, schedule = TRIAL.replace("Trial", "WithVoter"), schedule_of("kill", on="voters")
    ran = run(capsys, "--system", system, "--schedule", schedule)
    assert (ran.result["verdict"], ran.code) == ("valid", 0), ran.result["sentence"]
    assert ran.info["voters"] == ["v1"]
    exits = lines(ran.folder / "exits.jsonl")
    ended = [(one["node"], one["by"]) for one in exits]
    assert ended == [("v1", "kill"), *((f"n{i}", "stop") for i in (1, 2, 3)), ("v1", "stop")]
    # It has neither clients nor a log, and nobody asks it who leads.
    assert not (ran.folder / "logs/v1.jsonl").exists()
    assert ran.info["problems"] == []


@pytest.mark.integration
def test_nodes_know_voters_and_what_is_kept_open_is_closed(tmp_path: Path) -> None:
    system = registry.find(TRIAL.replace("Trial", "WithVoter"))
    spec = system.complete(Cluster(partitions=1, replication_factor=1, min_isr=1))
    schedule = Schedule(cluster=spec, workload=Workload(batch=1))
    (tmp_path / "run").mkdir()
    made = system.launch(schedule, RunDir(tmp_path / "run"), links="none")
    try:
        made.start()
        data = tmp_path / "run" / "data"
        assert (data / "n1/others").read_text() == "n2 n3 v1"
        assert (data / "v1/others").read_text() == "n1 n2 n3"
        assert (data / "n1/open").exists()
    finally:
        made.close()
    assert not (data / "n1/open").exists()


ASSUMED = "(assumed: what was appended to *.log since the storm began"
SPACE = pytest.param((), "user-space", "unsynced bytes", marks=pytest.mark.needs("fuse"))
DIRECT = ("--links", "none", "--disk", "declared")


@pytest.mark.integration
@pytest.mark.parametrize(("forms", "disk", "detail"), [(DIRECT, "declared", ASSUMED), SPACE])
def test_a_power_cut_takes_what_was_not_synced_and_says_what_it_assumes(
    capsys: pytest.CaptureFixture[str], forms: tuple[str, ...], disk: str, detail: str
) -> None:
    schedule = schedule_of("power-cut", keep_percent=0)
    ran = run(capsys, "--system", TRIAL, *forms, "--schedule", schedule)
    assert (ran.result["verdict"], ran.code) == ("invalid", 1), ran.result["sentence"]
    assert "gone everywhere" in ran.result["sentence"]
    assert ran.info["system"]["disk"] == disk
    again = setup_of(ran.folder, TRIAL)
    assert f"--schedule {ran.folder}" in ran.info["replay"]
    assert (again.disk, again.links) == (disk, ran.info["system"]["links"])
    faults = lines(ran.folder / "faults.jsonl")
    cut = next(line for line in faults if line["what"] == "power-cut")
    assert "n1 kept 0 of " in cut["detail"]
    assert detail in cut["detail"]
    assert sorted(path.name for path in (ran.folder / "data").iterdir()) == ["n1", "n2", "n3"]


@pytest.mark.integration
@pytest.mark.needs("fuse")
@pytest.mark.parametrize(("system", "verdict"), [("Trial", "valid"), ("SurvivesDamage", "invalid")])
def test_what_damage_costs_is_allowed_where_the_promise_does_not_cover_it(
    capsys: pytest.CaptureFixture[str], system: str, verdict: str
) -> None:
    name = f"{trial_adapters.__name__}:{system}"
    ran = run(capsys, "--system", name, "--schedule", schedule_of("disk-emptied"))
    assert ran.result["verdict"] == verdict, ran.result["sentence"]
    assert ran.info["promise"]["disks_kept"] == (verdict == "invalid")
    # What was read before it was lost has vanished; on a busy machine that may be all of it.
    losses = [each for each in ran.result["anomalies"] if each["name"] in ("lost", "vanished")]
    beyond = "more disks lost what they had synced than the promise covers"
    allowed = {each.get("allowed", "") for each in losses}
    assert allowed == {beyond if verdict == "valid" else ""}


@pytest.mark.integration
@pytest.mark.needs("fuse")
def test_a_node_that_cannot_write_is_not_blamed(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "--system", TRIAL, "--schedule", schedule_of("disk-full"))
    assert ran.result["verdict"] == "valid", ran.result["sentence"]
    faults = lines(ran.folder / "faults.jsonl")
    effect = next(line for line in faults if line["action"] == "effect")
    assert effect["writes"] > 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("command", "command raised KeyError: 'command is broken'"),
        ("create", "log-0 could not be made within 0.5 s: create last raised KeyError"),
        ("exits", "ended with code 3 while the cluster was starting; its last lines: one / cannot"),
        ("no binary", "no-such-binary: cannot be executed: No such file or directory"),
        ("promise", "promise raised KeyError: 'promise is broken'"),
    ],
)
def test_a_cluster_that_does_not_come_up_leaves_its_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, broken: str, sentence: str
) -> None:
    monkeypatch.setattr(trial_adapters.Trial, "start_s", 0.5 if broken == "create" else 30)
    ran = run(capsys, "--system", TRIAL, "--set", f"broken={broken}", *SHORT.split())
    assert (ran.code, ran.error.count("\n")) == (70, 0), ran.error
    assert sentence in ran.error
    assert sentence in ran.info["problems"][0]["sentence"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("broken", "recovers", "sentence"),
    [
        ("connect", False, "connect of the adapter last raised KeyError: 'connect is broken'"),
        ("send", False, "send of the adapter last raised KeyError: 'send is broken'"),
        ("offset", False, "send returned -7: Expected `int` >= 0"),
        ("read", False, "read of the adapter last raised KeyError: 'read is broken'"),
        ("dump", True, "the log of log-0 on n1 could not be read: KeyError: 'dump is broken'"),
        ("dump hangs", True, "dump took more than 1 s for n1"),
        ("dump denies", True, "no node has a log of log-0: dump returned None for each"),
    ],
)
def test_an_adapter_that_raises_makes_the_run_unknown(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    recovers: bool,
    sentence: str,
) -> None:
    if not recovers:
        patient(monkeypatch, recovery_ms=500)
    if broken == "dump hangs":
        monkeypatch.setattr(logs, "NODE_TIMEOUT_S", 1.0)
    ran = run(capsys, "--system", TRIAL, "--set", f"broken={broken}", *SHORT.split())
    assert (ran.result["verdict"], ran.code) == ("unknown", 2), ran.result["sentence"]
    assert sentence in " ".join(each["sentence"] for each in ran.info["problems"])


@pytest.mark.integration
@pytest.mark.parametrize("broken", ["probe", "probe hangs", "probe lies"])
def test_no_verdict_depends_on_the_probe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(cluster, "IN_SYNC_TIMEOUT_S", 0.2)
    # Of replicas whose probe says nothing it cannot be told whether they are in sync again.
    monkeypatch.setattr(cluster.ExternalCluster, "tells_in_sync", False)
    ran = run(capsys, "--system", TRIAL, "--set", f"broken={broken}", *SHORT.split())
    assert (ran.result["verdict"], ran.code) == ("valid", 0), ran.result["sentence"]
    assert ran.info["partitions"] == {"log-0": ["n1"]}, "as the dump says"
