"""The story of each known loss of other systems marks the fault that its row names.

`known_losses/` has what real runs left of the first lost record: its operations, the faults, the
exits and the logs at its offset.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checker.formats.story import Story
from checker.formats.verdict import Anomaly
from checker.story import evidence, story
from harness.formats.history import show_value

FOLDER = Path(__file__).parent / "known_losses"
CAUSES = {
    "redis-cut-off": "cut n1",
    "redis-stale": "kill",
    "pysyncobj-memory": "kill n1, n2 and n3",
    "pysyncobj-journal": "kill n1, n2 and n3",
    "nats-all-power": "power-cut n1, n2 and n3",
}
"""The fault that the row of each loss names: a primary is cut off, a stale replica is promoted when
the primary is killed, all nodes are killed, the disks of several nodes lose writes."""


def told(name: str, folder: Path) -> tuple[dict[str, Any], Story]:
    """Return what is kept of a run, and its story."""
    kept = json.loads((FOLDER / f"{name}.json").read_text())
    (folder / "logs").mkdir()
    (folder / "run.json").write_text(json.dumps(kept["run.json"]))
    files = {file: kept[file] for file in ("history.jsonl", "faults.jsonl", "exits.jsonl")}
    files |= {f"logs/{node}.jsonl": lines for node, lines in kept["logs"].items()}
    for file, lines in files.items():
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    finding = msgspec.convert(kept["finding"], Anomaly)
    return kept, story.build(evidence.read(folder, finding.partition), finding)


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_the_fault_that_the_row_names(name: str, tmp_path: Path) -> None:
    _, made = told(name, tmp_path)
    assert not made.traced
    assert made.steps[made.cause].text.startswith(f"Fault: {CAUSES[name]}")


@pytest.mark.parametrize("name", CAUSES)
def test_what_it_says_of_the_record_is_in_the_history(name: str, tmp_path: Path) -> None:
    kept, made = told(name, tmp_path)
    acked = [
        (op["t_us"], op["client"], send["value"])
        for op in kept["history.jsonl"]
        if op["type"] == "ok"
        for send in op.get("sends", ())
    ]
    assert (made.acknowledged_us, made.client, made.value) in acked
    said = [step.text for step in made.steps]
    for t_us, client, value in acked:
        line = f"{client}'s send of value {show_value(value)} is acknowledged"
        assert any(s.t_us == t_us and s.text.startswith(line) for s in made.steps), said
    assert made.loss > made.cause
    assert [s.t_us for s in made.steps] == sorted(s.t_us for s in made.steps)
    begun = [s.text[7:] for s in made.steps if s.kind == "fault"]
    for ended in (s.text[12:].rstrip(".") for s in made.steps if s.kind == "fault-end"):
        assert any(each.startswith(ended) for each in begun), "no end without a beginning"
