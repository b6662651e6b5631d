"""The checks broken on purpose: every change is noticed, or explained (docs/contributing.md)."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.lab.check_killers import Killers
from tests.lab.check_mutants import TARGETS, explained, hunt, mutants, what

killers = cache(Killers)


@pytest.mark.nightly
@pytest.mark.parametrize("file", TARGETS)
def test_every_mutant_is_noticed_or_explained(file: str) -> None:
    luck, known = Counter[str](), explained()
    every = [mutant for mutant in mutants(file) if what(mutant) not in known]
    assert [what(mutant) for mutant in every if not hunt(killers(), mutant, luck)] == []


@pytest.mark.nightly
def test_explanations_are_of_mutants_that_there_are() -> None:
    assert set(explained()) <= {what(mutant) for file in TARGETS for mutant in mutants(file)}
