"""The known bugs: each in the smallest script that shows it, and the facts of the catalogue.

The scripts are in `known_bugs/`; `stage_cluster` says how to read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats import anomalies
from node.core.bugs import KNOWN_BUGS, NAMES, Bugs, KnownBug, apply_bugs, parse
from node.core.protocol import PROPERTIES, REGISTRY
from tests.support.scripts import Case, play, read

FILES = sorted((Path(__file__).parent / "known_bugs").glob("*.txt"))
SCRIPTS = [case for path in FILES for case in read(path)]


def name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", SCRIPTS, ids=name)
def test_a_known_bug_breaks_its_property(case: Case, tmp_path: Path) -> None:
    stage, output = play(case, **case.variants[""])
    assert case.with_output({"": output}) == case.lines
    found = stage.judge(tmp_path)
    assert set(case.value("finds").split()) <= set(found), found
    broken = {bug.breaks for bug in KNOWN_BUGS if bug.code == case.value("bug")}
    assert broken <= set(found.values()), found
    assert case.value("bug") != "none" or not found


@pytest.mark.parametrize("case", SCRIPTS, ids=name)
def test_without_its_bug_a_script_breaks_nothing(case: Case, tmp_path: Path) -> None:
    stage, output = play(case, on=0, **case.variants[""])
    assert stage.judge(tmp_path) == {}, output


def test_each_bug_of_isr_high_watermark_and_controller_has_a_script() -> None:
    """The bugs of truncation and quorum are in the matrices, those of Liftbridge in scripts."""
    codes = [bug.code for bug in KNOWN_BUGS]
    families = codes[codes.index("M4") : codes.index("R1")]
    assert set(families) <= {case.value("bug") for case in SCRIPTS}


def test_without_a_bug_a_protocol_stays_what_it_is() -> None:
    for protocol in REGISTRY.values():
        assert apply_bugs(protocol, Bugs()) is protocol


@pytest.mark.parametrize("bug", [bug for bug in KNOWN_BUGS if bug.rules], ids=lambda bug: bug.name)
def test_a_bug_that_is_a_rule_changes_the_protocol_it_is_a_bug_of(bug: KnownBug) -> None:
    protocol = REGISTRY[bug.protocol]
    assert apply_bugs(protocol, parse([bug.code])) != protocol


def test_a_protocol_speaks_of_the_properties_that_the_checker_judges() -> None:
    judged = tuple(
        name
        for name in anomalies.PROPERTIES
        if name not in (anomalies.EXERCISE, *anomalies.OF_GROUPS)
    )
    assert judged == PROPERTIES


def test_the_catalogue_names_protocols_and_properties_that_exist() -> None:
    assert len({bug.code for bug in KNOWN_BUGS}) == len(set(NAMES)) == len(KNOWN_BUGS)
    for bug in KNOWN_BUGS:
        assert bug.protocol in REGISTRY, bug
        assert bug.breaks in (*PROPERTIES, *anomalies.OF_GROUPS), bug
