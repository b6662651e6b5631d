"""The document draws the journeys as the code goes them."""

from __future__ import annotations

import pytest

from tests.lab.journeys import DOCUMENT, drawing


@pytest.mark.nightly
def test_the_document_has_both_journeys() -> None:
    assert drawing() in DOCUMENT.read_text(), "run: python -m tests.lab journeys --write"
