"""Scripts of the loop: every turn is in the order that its file says."""

from __future__ import annotations

import pytest

from tests.support.scripts import Case, beside, proves


@pytest.mark.parametrize("case", beside(__file__), ids=lambda case: case.name)
def test_script(case: Case) -> None:
    proves(case)
