"""The story of each known loss of other systems marks the fault that its row names.

`known_losses/` has what real runs left of the first lost record: its operations, the faults, the
exits, the answers to probes and the logs at its offset."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checker.formats.story import Story
from checker.formats.verdict import Anomaly
from checker.story import evidence, story
from harness.formats.history import show_value
from tests.support.second_reading import wrong_cause

FOLDER = Path(__file__).parent / "known_losses"
ROOT = Path(__file__).parents[3]
NAIVE = "examples/naive_log/adapter.py:NaiveLog"
CAUSES = {
    "redis-cut-off": "cut n1",
    "redis-stale": "kill n1",
    "pysyncobj-memory": "kill n1, n2 and n3",
    "pysyncobj-journal": "kill n1, n2 and n3",
    "nats-all-power": "power-cut n1, n2 and n3",
    "naive-return": "kill n2",
}
"""The fault that the row of each loss names: a primary is cut off, a stale replica is promoted when
the primary n1 is killed, all nodes are killed, the disks of several nodes lose writes, a node comes
back and leads with a shorter log."""


def told(name: str, folder: Path) -> tuple[dict[str, Any], Story]:
    """Return what is kept of a run, and its story."""
    kept = json.loads((FOLDER / f"{name}.json").read_text())
    (folder / "logs").mkdir()
    (folder / "run.json").write_text(json.dumps(kept["run.json"]))
    names = ("history.jsonl", "faults.jsonl", "exits.jsonl", "probes.jsonl")
    files = {file: kept[file] for file in names}
    files |= {f"logs/{node}.jsonl": lines for node, lines in kept["logs"].items()}
    for file, lines in files.items():
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    finding = msgspec.convert(kept["finding"], Anomaly)
    return kept, story.build(evidence.read(folder, finding.partition), finding)


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_the_fault_that_the_row_names(name: str, tmp_path: Path) -> None:
    _, made = told(name, tmp_path)
    assert not made.traced
    assert made.steps[made.led_by].name.startswith(CAUSES[name])
    cause = made.steps[made.cause]
    assert cause.breaks == "elected-without" or made.cause == made.led_by, cause


def test_a_node_that_comes_back_leads_because_its_fault_ended(tmp_path: Path) -> None:
    _, made = told("naive-return", tmp_path)
    cause, fault = made.steps[made.cause], made.steps[made.led_by]
    assert (cause.node, cause.breaks, cause.kind) == ("n2", "elected-without", "role")
    assert (fault.kind, fault.name) == ("fault-end", "kill n2")
    assert made.active == (), "the kill was healed before the record was sent"


@pytest.mark.parametrize("name", CAUSES)
def test_a_second_reading_of_the_files_finds_the_same_cause(name: str, tmp_path: Path) -> None:
    _, made = told(name, tmp_path)
    assert wrong_cause(tmp_path, made) == ""


@pytest.mark.nightly
def test_causes_of_drawn_kills_are_those_of_a_second_reading(tmp_path: Path) -> None:
    lost = 0
    wrong: list[str] = []
    for seed in range(40):
        command = [sys.executable, "-m", "floodmark", "run", "--system", NAIVE, "--faults", "kill"]
        command += ["--time-limit", "8", "--clients", "4", "--rate", "20", "--batch", "1"]
        command += ["--partitions", "1", "--seed", str(seed), "--store", str(tmp_path / str(seed))]
        subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL)
        for file in (tmp_path / str(seed)).rglob("story.json"):
            made = msgspec.json.decode(file.read_bytes(), type=Story)
            if made.acknowledged_us >= 0 and made.value >= 0:
                lost += 1
                why = wrong_cause(file.parent, made)
                wrong += [f"{seed}: {why}"] if why else []
    assert lost >= 20
    assert len(wrong) <= 0.05 * lost, wrong


@pytest.mark.parametrize("name", CAUSES)
def test_what_it_says_of_the_record_is_in_the_history(name: str, tmp_path: Path) -> None:
    kept, made = told(name, tmp_path)
    acked = [
        (op["t_us"], op["client"], send["value"])
        for op in kept["history.jsonl"]
        if op["type"] == "ok"
        for send in op.get("sends", ())
        if send.get("offset") == made.offset
    ]
    assert (made.acknowledged_us, made.client, made.value) in acked
    said = [step.text for step in made.steps]
    for t_us, client, value in acked:
        line = f"{client}'s send of value {show_value(value)} is acknowledged"
        assert any(s.t_us == t_us and s.text.startswith(line) for s in made.steps), said
    kept = any(" the record;" in s.text for s in made.steps[-1:])
    assert made.loss > made.cause or (made.loss == -1 and kept)
    assert [s.t_us for s in made.steps] == sorted(s.t_us for s in made.steps)
    begun = [s.text[7:] for s in made.steps if s.kind == "fault"]
    for ended in (s.text[12:].rstrip(".") for s in made.steps if s.kind == "fault-end"):
        assert any(each.startswith(ended) for each in begun), "no end without a beginning"


def leaders(kept: dict[str, Any], t_us: int) -> set[str]:
    """Return the nodes that said last that they lead, and whose process has not ended since."""
    said = [e for e in kept["probes.jsonl"] if e["event"] == "role" and e["t_us"] <= t_us]
    gone = [x | {"role": "none"} for x in kept["exits.jsonl"] if x["t_us"] <= t_us]
    last = {e["node"]: e["role"] for e in sorted([*said, *gone], key=lambda e: e["t_us"])}
    return {node for node, role in last.items() if role == "leader"}


@pytest.mark.parametrize("name", CAUSES)
def test_what_it_says_of_leaders_is_what_nodes_answered(name: str, tmp_path: Path) -> None:
    kept, made = told(name, tmp_path)
    isr = [e for e in kept["probes.jsonl"] if e["event"] == "isr"]
    found = 0
    for step in made.steps:
        led = leaders(kept, step.t_us)
        for names in re.findall(r" while ([n\d, and]+?) (?:leads|say that they lead)", step.text):
            assert set(re.findall(r"n\d", names)) == led, step.text
            found += 1
        for node, over in re.findall(r"^(n\d) (no longer )?says that it leads", step.text):
            assert (node in led) == (not over), step.text
            found += 1
        for node, names in re.findall(r"(n\d)(?: [ \w,]+? and)? names ([n\d, and]+) in", step.text):
            sets = [e["isr"] for e in isr if e["node"] == node and e["t_us"] <= step.t_us]
            assert sorted(sets[-1]) == re.findall(r"n\d", names), step.text
    assert found >= 2
    for span in made.spans:
        middle = (span.from_us + span.until_us) // 2
        assert span.lane != "led" or span.who in leaders(kept, middle), span
