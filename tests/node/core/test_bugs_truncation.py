"""Bugs of truncation that no history of the matrix shows, and the catalogue's own facts."""

from __future__ import annotations

import pytest

from node.core.bugs import KNOWN_BUGS, NAMES, RULES, Bugs, apply_bugs, parse
from node.core.protocol import KAFKA, KIP_101, PROPERTIES, REGISTRY
from tests.support.core_scenarios import Cluster, Variant, kip_279_scenario_1


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
    exhibit = next(e for e in KNOWN_BUGS if e.name == name.replace("_", "-"))
    protocol = REGISTRY[exhibit.protocol]
    assert apply_bugs(protocol, parse([exhibit.code])) != protocol


def test_the_catalogue_names_protocols_and_properties_that_exist() -> None:
    assert len({e.code for e in KNOWN_BUGS}) == len(set(NAMES)) == len(KNOWN_BUGS)
    for exhibit in KNOWN_BUGS:
        assert exhibit.protocol in REGISTRY, exhibit
        assert exhibit.breaks in PROPERTIES, exhibit
