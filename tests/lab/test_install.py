"""The first day: the wheel in an empty environment, its size, and a first finding."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.nightly

MOST_MB = 330
"""What the environment of the core may take, without any extra."""
PATIENCE_S = 900


def test_the_core_is_small_and_finds_a_lost_write_after_its_installation(tmp_path: Path) -> None:
    """Needs a package registry, as `make setup` does."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(wheel, check=True, timeout=PATIENCE_S)
    (made,) = tmp_path.glob("floodmark-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(made)],
        # A path to these sources would count as an installation.
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=True,
        timeout=PATIENCE_S,
    )
    files = [file for file in (tmp_path / "venv").rglob("*") if not file.is_symlink()]
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    assert size_mb <= MOST_MB
    demo = subprocess.run(
        [python, "-m", "floodmark", "demo", "--quiet"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr
    assert "kip-101 keeps the record." in demo.stdout
