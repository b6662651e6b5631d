"""Scripts of links: every command does what its file says (`tests/support/scripts.py`)."""

from __future__ import annotations

import pytest

from tests.support.scripts import Case, beside, proves


@pytest.mark.integration
@pytest.mark.parametrize("case", beside(__file__), ids=lambda case: case.name)
def test_script(case: Case) -> None:
    proves(case)
