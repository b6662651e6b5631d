"""The checks broken on purpose: every change is noticed, or explained (docs/contributing.md)."""

from __future__ import annotations

import pytest

from tests.lab.check_killers import killers
from tests.lab.check_mutants import TARGETS, explained, hunted, key, mutants, what


@pytest.mark.nightly
def test_every_mutant_is_noticed_or_explained() -> None:
    reasons, noticed = explained(), dict[str, str]()
    every = [m for file in TARGETS for m in mutants(file) if what(m) not in reasons]
    for _ in hunted(every, noticed, killers(TARGETS)):
        pass
    assert [what(mutant) for mutant in every if not noticed[key(mutant)]] == []


@pytest.mark.nightly
def test_explanations_are_of_mutants_that_there_are() -> None:
    assert set(explained()) <= {what(mutant) for file in TARGETS for mutant in mutants(file)}
