"""The core depends on no hash, address or float; what it imports is held by test_project.py."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT

CORE = sorted((ROOT / "node" / "core").glob("*.py"))
REFUSED = {"id", "hash", "open", "print", "input", "float"}


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_has_no_order_that_depends_on_hashes_or_addresses(path: Path) -> None:
    for one in ast.walk(ast.parse(path.read_text())):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name):
            assert one.func.id not in REFUSED, one.lineno
        loops = one.iter if isinstance(one, ast.For | ast.comprehension) else None
        assert not isinstance(loops, ast.Set | ast.SetComp), path
        if isinstance(loops, ast.Call) and isinstance(loops.func, ast.Name):
            assert loops.func.id not in ("set", "frozenset"), path
        assert not (isinstance(one, ast.Constant) and isinstance(one.value, float)), one.lineno
