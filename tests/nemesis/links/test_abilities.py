"""Links decide which faults are possible: drawn, checked and carried out accordingly."""

from __future__ import annotations

import pytest

from nemesis.draw import draw
from nemesis.faults import KINDS, Delay, FaultKind, kinds_on, storm_kinds
from nemesis.faults.link_fault import LinkFault
from nemesis.formats.schedule import Cluster, Workload
from nemesis.links.abilities import HUB, TCP_PROXY, LinkAbilities


def test_faults_follow_from_what_links_can_do() -> None:
    on_links = {name for name, kind in KINDS.items() if kind.on_links}
    only_tcp = {"slow", "reset", "half-open"}
    only_messages = {"loss", "link"}
    assert set(kinds_on(HUB)) == KINDS.keys() - only_tcp
    assert set(kinds_on(TCP_PROXY)) == KINDS.keys() - only_messages
    assert set(kinds_on(None)) == KINDS.keys() - on_links
    assert only_tcp | only_messages < on_links


def link_faults(links: LinkAbilities) -> list[FaultKind]:
    """Many drawn faults of each kind on links that storms draw for such links."""
    kinds = [k for k in storm_kinds() if k in kinds_on(links) and KINDS[k].on_links]
    found = [f for seed in range(40) for f in draw(Cluster(), Workload(), kinds, seed, links)]
    return [fault for fault in found if isinstance(fault, FaultKind)]


@pytest.mark.parametrize("links", [HUB, TCP_PROXY], ids=lambda links: links.name)
def test_what_is_drawn_is_possible(links: LinkAbilities) -> None:
    drawn = link_faults(links)
    assert {fault.what for fault in drawn} == {
        k for k in storm_kinds() if k in kinds_on(links) and KINDS[k].on_links
    }
    for fault in drawn:
        assert isinstance(fault, LinkFault)
        assert fault.why_impossible(links) == ""
        if hasattr(fault, "action"):
            links.check(fault.like())


def test_links_change_no_other_draw() -> None:
    kinds = ["kill", "cut", "delay", "isolate"]
    for seed in range(100):
        on_tcp = draw(Cluster(), Workload(), kinds, seed, TCP_PROXY)
        on_hub = draw(Cluster(), Workload(), kinds, seed)
        assert [(f.what, f.at_ms, f.for_ms) for f in on_tcp] == [
            (f.what, f.at_ms, f.for_ms) for f in on_hub
        ]


def test_a_delay_of_some_messages_is_impossible_on_tcp() -> None:
    some = Delay(on="n1", to="n2", delay_ms=5, kinds=("fetch",), at_ms=1)
    assert "no kinds to choose" in some.why_impossible(TCP_PROXY)
    assert some.why_impossible(HUB) == ""
