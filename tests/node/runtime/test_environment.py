"""Variables for children are there while they are started, and restored afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from node.runtime.environment import inherited

pytestmark = pytest.mark.integration

SAY = "import os; print(os.environ.get('FLOODMARK_A'), os.environ.get('FLOODMARK_B'))"


def said() -> str:
    return subprocess.check_output([sys.executable, "-c", SAY], text=True).strip()


def start_and_fail() -> None:
    with inherited({"FLOODMARK_A": "a", "FLOODMARK_B": "b"}):
        assert said() == "a b"
        raise ZeroDivisionError


def test_children_inherit_it_and_it_is_undone_after_an_error_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLOODMARK_A", "before")
    monkeypatch.delenv("FLOODMARK_B", raising=False)
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError):
        start_and_fail()
    assert dict(os.environ) == before
