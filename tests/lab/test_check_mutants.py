"""The checks broken on purpose: every change is noticed, or explained (docs/mutants.md)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lab.check_killers import Killers
from tests.lab.check_mutants import TARGETS, explained, hunt, mutants, what

SAMPLE = 40
"""One mutant of so many is in the sample; the whole takes half an hour."""


def survivors(step: int) -> list[str]:
    """Return the unnoticed mutants without an explanation."""
    killers, luck, known = Killers(), Counter[str](), explained()
    every = [mutant for file in TARGETS for mutant in mutants(file)]
    tried = [mutant for mutant in every[::step] if what(mutant) not in known]
    return [what(mutant) for mutant in tried if not hunt(killers, mutant, luck)]


@pytest.mark.nightly
def test_a_sample_of_mutants_is_noticed() -> None:
    assert survivors(SAMPLE) == []


@pytest.mark.nightly
def test_every_mutant_is_noticed_or_explained() -> None:
    assert survivors(1) == []


@pytest.mark.nightly
def test_explanations_are_of_mutants_that_there_are() -> None:
    assert set(explained()) <= {what(mutant) for file in TARGETS for mutant in mutants(file)}
