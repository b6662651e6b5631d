"""The store of a nightly run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nightly_fakes import NightlyRuns


@pytest.fixture
def store(tmp_path: Path) -> NightlyRuns:
    return NightlyRuns(tmp_path / "store")
