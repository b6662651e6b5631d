"""The story of a loss without traces: by a history alone, and by who leads after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.story import Story, StoryStep
from checker.ingest.external_history import run_folder_of
from checker.story import outside
from checker.story.story import write_story
from node.formats.json_input import read_file
from reports.evidence.model import read
from reports.run_page import cause_strip, first_screen

SENT = 12


def history(folder: Path, reads: list[list[int]]) -> Path:
    """Write a history of Jepsen in which `SENT` records are acknowledged, then these offsets are
    read, an operation each."""
    lines = []

    def add(process: int, what: str, f: str, value: str) -> None:
        number = len(lines)
        about = f":process {process}, :type :{what}, :f :{f}, :value {value}"
        lines.append(f"{{:index {number}, {about}, :time {1_000_000 * (number + 1)}}}")

    for offset in range(SENT):
        add(0, "invoke", "send", f'[[:send "0" {offset + 1}]]')
        add(0, "ok", "send", f'[[:send "0" [{offset} {offset + 1}]]]')
    for offsets in reads:
        pairs = " ".join(f"[{offset} {offset + 1}]" for offset in offsets)
        add(1, "invoke", "poll", "[[:poll]]")
        add(1, "ok", "poll", f'[[:poll {{"0" [{pairs}]}}]]')
    file = folder / "history.edn"
    file.write_text("\n".join(lines) + "\n")
    return run_folder_of(file)


@pytest.mark.parametrize(
    "reads", [[[0, 1, 2, 3], [4, 6, 7]], [[0, 1, 2, 3, 4], [6, 7, 8], [9, 10, 11]]]
)
def test_the_read_that_passes_over_a_lost_record_is_a_step(
    reads: list[list[int]], tmp_path: Path
) -> None:
    run = history(tmp_path, reads)
    result = check_run(run, write=True)
    assert write_story(run, result) is not None
    story = read_file(run / "story.json", Story)
    assert (story.about, story.offset) == ("lost", 5)
    assert [step.text for step in story.steps] == [
        "0's send of value 6 is acknowledged at offset 5.",
        "1 reads offset 6 after offset 4.",
    ]
    folder = read(run, "floodmark")
    at_s = folder.seconds(story.steps[-1].t_us)
    assert first_screen.headline(folder).startswith(f"1 acknowledged record lost at {at_s:.2f} s")
    assert "Not known: a history alone does not say." in [
        h.text for h in first_screen.lines(folder)
    ]
    assert cause_strip.strip(folder) is not None


def test_who_leads_after_a_loss_is_left_out_of_its_story() -> None:
    roles = [
        StoryStep(t_us=t_us, text="n1 says that it leads.", kind="role") for t_us in (5, 9, 12)
    ]
    lost = StoryStep(t_us=9, text="c2 reads value 7 at offset 3.", kind="read", breaks="read-other")
    steps = outside._thinned([(s, False) for s in (*roles, lost)], roles[0], lost.t_us)
    assert [minor for _, minor in steps] == [False, False, True, False]
