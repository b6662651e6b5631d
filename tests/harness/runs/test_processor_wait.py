"""A machine that is too busy is not blamed on the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.runs.host import too_busy, waited
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("before", "after", "is_busy"),
    [
        ({}, {}, False),
        ({1: 5.0}, {1: 6.9}, False),
        ({1: 5.0, 2: 0.0}, {1: 5.1, 2: 2.1}, True),
        # A process that was started meanwhile, and one that has ended.
        ({1: 5.0}, {2: 2.5}, True),
        # A wait that began before the first look, and ended after it.
        ({1: 5.0}, {1: 20.4}, True),
    ],
)
def test_a_fifth_of_the_time_is_too_much(
    before: dict[int, float], after: dict[int, float], is_busy: bool
) -> None:
    sentence = too_busy("recovery", before, after, 10.0)
    assert bool(sentence) == is_busy
    assert not is_busy or "s of 10.0 s for a processor" in sentence
    assert "15.4 s" not in sentence, "longer than there was time"


@pytest.mark.integration
def test_every_thread_of_a_process_that_writes_to_the_folder_is_looked_at(tmp_path: Path) -> None:
    """The kernel's figure for a process is that of its first thread."""
    output = tmp_path / "output"
    output.mkdir()
    files = [output / "n1.txt", output / "spark.txt", tmp_path / "n2.txt"]
    code = "from threading import Event, Thread\nfor _ in '12': Thread(target=Event().wait).start()"
    words = [sys.executable, "-c", code]
    started = [subprocess.Popen(words, stdout=file.open("w")) for file in files]
    try:
        until(lambda: len(waited(output)) == 3, "three threads")
        assert started[0].pid in waited(output)
        assert min(waited(output).values()) >= 0
    finally:
        for each in started:
            each.kill()
            each.wait()
