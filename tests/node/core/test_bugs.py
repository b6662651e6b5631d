"""The known bugs: each in the smallest script that shows it, and the facts of the catalogue.

The scripts are in `known_bugs/`; `bug_script` says how to read them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats import anomalies
from node.core.bugs import KNOWN_BUGS, NAMES, RULES, Bugs, apply_bugs, parse
from node.core.protocol import KAFKA, KIP_101, PROPERTIES, REGISTRY
from tests.support import bug_script
from tests.support.replica_scenarios import Cluster, Variant, kip_279_scenario_1

SCRIPTS = sorted((Path(__file__).parent / "known_bugs").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_known_bug_breaks_its_property(path: Path, tmp_path: Path) -> None:
    file = bug_script.read(path)
    script = bug_script.Script(file.code, on=True, **file.options)
    script.act(file.commands)
    assert script.text() == "\n".join(file.lines)
    found = script.judge(tmp_path)
    assert set(file.finds) <= set(found), found
    broken = {bug.breaks for bug in KNOWN_BUGS if bug.code == file.code}
    assert broken <= set(found.values()), found
    assert file.code != "none" or not found


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_without_its_bug_a_script_breaks_nothing(path: Path, tmp_path: Path) -> None:
    file = bug_script.read(path)
    script = bug_script.Script(file.code, on=False, **file.options)
    script.act(file.commands)
    assert script.judge(tmp_path) == {}, script.text()


def test_each_bug_of_isr_high_watermark_and_controller_has_a_script() -> None:
    """The bugs of truncation and quorum are in the matrices, those of Liftbridge in a test file of
    their own."""
    codes = [bug.code for bug in KNOWN_BUGS]
    families = codes[codes.index("M4") : codes.index("R1")]
    assert set(families) <= {bug_script.read(path).code for path in SCRIPTS}


def led_and_wrote_nothing(variant: Variant) -> Cluster:
    """n2 leads epoch 2 and writes nothing; then it follows again."""
    c = Cluster(variant, n1=("", 0), n2=("", 0))
    c.elect("n1", 1, "n1 n2")
    c.write("n1", 2)
    c.run(idle=True)
    c.elect("n2", 2, "n1 n2")
    c.mail.clear()
    c.elect("n1", 3, "n1 n2")
    return c


def test_an_epoch_without_records_that_stays_in_the_cache_is_asked_about_for_ever() -> None:
    """KAFKA-10706. The answer says to cut at the log end; nothing is cut, so nothing changes."""
    assert led_and_wrote_nothing(Variant(KAFKA)).outcome() == "."
    c = led_and_wrote_nothing(Variant(KAFKA, ("keep-empty-epoch",)))
    assert c.outcome() == "S"
    assert "n2 fetches at 2, last epoch 2: diverging (1, 2); nothing to cut" in c.story
    assert c.nodes["n2"].r.log.cache.entries() == [(1, 0), (2, 2)]


def test_a_cut_inside_a_batch_that_keeps_its_offsets_leaves_a_hole() -> None:
    """KIP-279's scenario 1 with n = 25: the cut at 21 falls into n2's batch 11..25."""
    c = kip_279_scenario_1(Variant(KIP_101), 25)
    assert (c.outcome(), c.log("n2")) == (".", "0-10e1 11-20e1 21-30e3")
    c = kip_279_scenario_1(Variant(KIP_101, ("cut-inside-batch",)), 25)
    assert (c.outcome(), c.log("n2")) == ("D", "0-10e1 21-30e3")
    c.start("n2")
    assert c.log("n2") == "0-10e1 21-30e3", "a process that has the bug starts on such a log"


def test_without_a_bug_a_protocol_stays_what_it_is() -> None:
    for protocol in REGISTRY.values():
        assert apply_bugs(protocol, Bugs()) is protocol


@pytest.mark.parametrize("name", RULES)
def test_a_bug_that_is_a_rule_changes_the_protocol_it_is_a_bug_of(name: str) -> None:
    bug = next(b for b in KNOWN_BUGS if b.name == name.replace("_", "-"))
    protocol = REGISTRY[bug.protocol]
    assert apply_bugs(protocol, parse([bug.code])) != protocol


def test_a_protocol_speaks_of_the_properties_that_the_checker_judges() -> None:
    judged = tuple(name for name in anomalies.PROPERTIES if name != anomalies.EXERCISE)
    assert judged == PROPERTIES


def test_the_catalogue_names_protocols_and_properties_that_exist() -> None:
    assert len({bug.code for bug in KNOWN_BUGS}) == len(set(NAMES)) == len(KNOWN_BUGS)
    for bug in KNOWN_BUGS:
        assert bug.protocol in REGISTRY, bug
        assert bug.breaks in PROPERTIES, bug
