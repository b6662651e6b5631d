"""The document draws the journeys as the code goes them."""

from __future__ import annotations

import pytest

from tests.lab.journeys import DOCUMENT, drawing, of_job, of_kill, of_request


@pytest.mark.nightly
def test_the_document_has_both_journeys() -> None:
    assert drawing() in DOCUMENT.read_text(), "run: python -m tests.lab journeys --write"


def test_the_request_of_a_run_goes_through_few_files() -> None:
    assert len(of_request()) <= 20


def test_a_kill_goes_through_few_files() -> None:
    assert len(of_kill()) <= 10


@pytest.mark.integration
def test_a_search_job_goes_through_few_files() -> None:
    # Five of them have the rules that each step of a simulated broker is compared with.
    assert len(of_job()) <= 42
