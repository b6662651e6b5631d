"""The story of a finding about a group says who had the record, who settled it, and what broke."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

import reports
from checker.engine.local import check_run
from checker.formats.story import RULES, Story
from checker.ingest.external_history import run_folder_of
from checker.story import story
from checker.story.delivery import RULE_OF
from tests.checker.checks.delivery.test_cases import CASES, TRUTH
from tests.support.html_page import HtmlPage

SHOWN = {
    name: next(iter({*truth["anomalies"]} & {*RULE_OF}))
    for name, truth in TRUTH.items()
    if {*truth["anomalies"]} & {*RULE_OF} - {"epoch-back"}
}
FAULTS = """\
{"fault":0,"what":"kill","action":"inject","t_us":1,"nodes":["n1"],"on":"leader:log-0"}
{"fault":1,"what":"kill","action":"inject","t_us":35000,"nodes":["n2"],"on":"leader:log-0"}
{"fault":2,"what":"kill","action":"inject","t_us":3500000,"nodes":["n3"],"on":"leader:log-0"}
"""


def told(
    name: str, folder: Path, faults: str = "", other: Mapping[str, str] = {}
) -> tuple[Story, HtmlPage]:
    text = (CASES / f"{name}.jsonl").read_text()
    for was, now in other.items():
        text = text.replace(was, now)
    (folder / "h.jsonl").write_text(text)
    run = run_folder_of(folder / "h.jsonl", TRUTH[name]["promise"])
    (run / "faults.jsonl").write_text(faults)
    result = check_run(run)
    (run / "results.json").write_bytes(msgspec.json.encode(result))
    assert story.write_story(run, result)
    made = msgspec.json.decode((run / "story.json").read_bytes(), type=Story)
    return made, HtmlPage(reports.build(run))


@pytest.mark.parametrize(("name", "anomaly"), SHOWN.items())
def test_the_last_step_breaks_the_rule_of_the_finding(
    name: str, anomaly: str, tmp_path: Path
) -> None:
    made, page = told(name, tmp_path)
    assert made.steps[made.loss].rule == RULE_OF[anomaly]
    assert made.loss == made.cause == len(made.steps) - 1, "no fault is known"
    assert RULES[RULE_OF[anomaly]] in " ".join(page.blocks)


def test_a_settled_record_that_comes_back(tmp_path: Path) -> None:
    made, page = told("a11-settled-and-back", tmp_path, FAULTS)
    assert [step.text for step in made.steps] == [
        "Fault: kill n1, the leader of log-0.",
        "p9's send of value 10 is acknowledged at offset 0.",
        "m1 gets value 10, as delivery 1 of it.",
        "m1 acks value 10: confirmed.",
        "Fault: kill n2, the leader of log-0.",
        "m2 gets value 10, as delivery 2 of it.",
    ]
    assert made.steps[made.cause].name == "kill n2, the leader of log-0", "the first since the ack"
    assert [(s.lane, s.who, s.what) for s in made.spans if s.lane != "fault"] == [
        ("delivered", "m1", "delivery 1"),
        ("settled", "m1", "ack ok"),
        ("delivered", "m2", "delivery 2"),
    ]
    assert "1 settled record delivered again at 2.50 s in log-0 at offset 0" in page.blocks
    assert "m1 delivery 1 (0.012 s), m1 ack ok (0.030 s), m2 delivery 2 (2.502 s)." in page.blocks


def test_a_record_without_offset_is_known_by_its_value(tmp_path: Path) -> None:
    """One of two records that were given together, and settled together, comes again."""
    other = {
        '"value": 10, "offset": 0}': '"value": 9, "count": 2}',
        '"value": 10}': '"value": 9, "count": 2}',
        "[10, 1, 0, 1": "[9, 2, -1, 1",
        "[10, 1, 0, 2": "[10, 1, -1, 3",
    }
    made, _ = told("a11-settled-and-back", tmp_path, FAULTS, other)
    assert (made.offset, made.value) == (-1, 10)
    assert [step.text for step in made.steps if not step.name] == [
        "m1 gets value 10, as delivery 1 of it.",
        "m1 acks value 10: confirmed.",
        "m2 gets value 10, as delivery 2 of it.",
    ]
