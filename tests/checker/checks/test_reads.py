"""Golden stories: reads never reach beyond the high watermark."""

from __future__ import annotations

from pathlib import Path

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from tests.support.checker.story import Story, against


def traced() -> Story:
    """Return a run whose traces tell of every high watermark."""
    s = Story(capabilities=["trace", "hw"])
    s.send(10, 2, at=0, begin=0, end=2)
    s.send(20, at=2, process=2, begin=0, end=2)
    return s


def test_without_the_whole_trace_nothing_is_concluded(tmp_path: Path) -> None:
    s = traced()
    s.hw("n1", (10, 2), ms=1)
    s.poll((0, 10, 2), (2, 20), begin=1, end=3)
    folder = s.write(tmp_path)
    (folder / "trace" / "n2.jsonl").unlink()
    result = check_run(folder)
    assert against(result) == {}
    assert result.problems == ("trace/n2.jsonl is missing.",)
    assert result.verdict is Verdict.UNKNOWN
