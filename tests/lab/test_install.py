"""The first day: the wheel in an empty environment, its size, and a first finding."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.nightly

MOST_MB = 330
"""The size of an environment with the core, without any extra."""
MOST_S = 90
"""The time from the wheel to the first finding, on two cores that do little else."""
PATIENCE_S = 900
README = (ROOT / "README.md").read_text("utf-8")


def test_the_core_is_small_and_finds_a_lost_write_after_its_installation(tmp_path: Path) -> None:
    """Needs a package registry, as `make setup` does."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(wheel, check=True, timeout=PATIENCE_S)
    (made,) = tmp_path.glob("floodmark-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    began_s, began = time.monotonic(), os.times()
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(made)],
        # A path to these sources would count as an installation.
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=True,
        timeout=PATIENCE_S,
    )
    demo = subprocess.run(
        [python, "-m", "floodmark", "demo", "--quiet"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    ended = os.times()
    worked_s = sum(ended[2:4]) - sum(began[2:4])
    assert demo.returncode == 0, demo.stderr
    assert_is_an_excerpt(README, of=demo.stdout)
    files = [file for file in (tmp_path / "venv").rglob("*") if not file.is_symlink()]
    assert sum(file.stat().st_size for file in files) / 1e6 <= MOST_MB
    # A machine that has much else to do takes longer, but works no longer.
    assert min(time.monotonic() - began_s, worked_s) < MOST_S


def assert_is_an_excerpt(document: str, of: str) -> None:
    """Hold that each line below `floodmark demo` in a document begins a line of `of`, in order."""
    (block,) = re.findall(r"```sh\nfloodmark demo\n```.*?```\n(.*?)```", document, re.DOTALL)
    printed = iter(map(timeless, of.splitlines()))
    for line in block.splitlines():
        if line != "...":
            begin = timeless(line.removesuffix(" ..."))
            assert any(one.startswith(begin) for one in printed), f"not printed here: {line}"


def timeless(line: str) -> str:
    """Return a line of output without the time that the search took."""
    return re.sub(r"after [\d.]+ s", "after", line)


def test_the_readme_names_each_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "docs", "systems"}
    assert extras <= set(re.findall(r"`([a-z]+)`", README))
