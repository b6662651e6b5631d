"""Links decide which faults are possible: drawn, checked and carried out accordingly."""

from __future__ import annotations

import random

import pytest

from nemesis.draw import draw
from nemesis.faults import KINDS, Delay, FaultKind, kinds_on, storm_kinds
from nemesis.faults.link_fault import LinkFault
from nemesis.formats.schedule import Cluster, Workload
from nemesis.links.abilities import HUB, TCP_PROXY, LinkAbilities
from nemesis.links.pipeline import LinkPipeline
from nemesis.links.rule import Action, LinkRule
from node.formats.errors import UsageError


def rule(action: Action, **fields: object) -> LinkRule:
    fields |= {"bytes_per_s": 10} if action == "slow" else {}
    return LinkRule(senders=("n1",), receivers=("n2",), action=action, **fields)  # type: ignore[arg-type]


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
        links.check(fault.like() if hasattr(fault, "action") else rule("drop"))


def test_links_change_no_other_draw() -> None:
    kinds = ["kill", "cut", "delay", "isolate"]
    for seed in range(100):
        on_tcp = draw(Cluster(), Workload(), kinds, seed, TCP_PROXY)
        on_hub = draw(Cluster(), Workload(), kinds, seed)
        assert [(f.what, f.at_ms, f.for_ms) for f in on_tcp] == [
            (f.what, f.at_ms, f.for_ms) for f in on_hub
        ]


@pytest.mark.parametrize("action", ["slow", "reset", "half-open"])
def test_the_hub_refuses_what_only_connections_have(action: Action) -> None:
    pipeline = LinkPipeline[bytes](lambda _: {}, random.Random(1))
    with pytest.raises(UsageError, match=f"^the link hub cannot {action} what passes"):
        pipeline.add(rule(action))
    assert pipeline.is_idle(0)


@pytest.mark.parametrize(
    "fields", [{"kinds": ("fetch",)}, {"match": {"hw": 1}}, {"percent": 50}, {"limit": 1}], ids=str
)
def test_bytes_cannot_be_chosen_as_messages(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"carries bytes .* sees no single messages"):
        TCP_PROXY.check(rule("delay", **fields))
    HUB.check(rule("delay", **fields))


def test_a_delay_of_some_messages_is_impossible_on_tcp() -> None:
    some = Delay(on="n1", to="n2", delay_ms=5, kinds=("fetch",), at_ms=1)
    assert "no kinds to choose" in some.why_impossible(TCP_PROXY)
    assert some.why_impossible(HUB) == ""


@pytest.mark.parametrize("action", ["drop", "slow"])
def test_only_a_slow_has_a_rate_and_each_has_one(action: Action) -> None:
    wrong = 0 if action == "slow" else 5
    with pytest.raises(UsageError, match="a slow needs bytes_per_s above 0, nothing else takes it"):
        LinkRule(senders=("n1",), receivers=("n2",), action=action, bytes_per_s=wrong)
