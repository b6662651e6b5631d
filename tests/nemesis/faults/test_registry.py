"""A fault is one class: everything else asks the registry, and a new one changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import reports
from harness.search.shrink import passes as shrink_passes
from nemesis import faults
from nemesis.draw import draw
from nemesis.faults import KINDS, FaultKind, PowerCut, aliases, register, storm_kinds
from nemesis.faults.kind import ONE_NODE, Drawing, Healed, Injected, Site
from nemesis.faults.losses import outnumber_copies
from nemesis.formats import fault as formats
from nemesis.formats.fault import ROLES
from nemesis.formats.schedule import Cluster, Schedule, Workload, parse
from node.formats.errors import UsageError
from tests.support import report_fixtures as made
from tests.support.nemesis_world import Storm
from tests.support.paths import ROOT


class Flap(FaultKind, frozen=True, kw_only=True, tag="flap"):
    """A fault that only this test knows: paused and resumed `times` times, and paused at last."""

    on: str
    times: int = 3

    letter = "?F"
    colour = "#123456"
    sentence = "Pause and resume {on} {times} times"
    on_processes = True
    drawing = Drawing(targets=ONE_NODE, fails_leader=(3,))

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """Yield problems as every fault does; this one must also do something."""
        yield from super().problems(cluster, workload)
        if self.times < 1:
            yield "times must be positive"

    def inject(self, site: Site) -> Injected:
        """Pause and resume each node, and pause it."""
        for node in site.nodes:
            for _ in range(self.times - 1):
                site.processes.pause(site.number, node)
                site.processes.resume(node)
            site.processes.pause(site.number, node)
        return Injected(nodes=site.nodes, detail=f"{self.times} times")

    def heal(self, injected: Injected, site: Site) -> Healed:
        for node in injected.nodes:
            site.processes.resume_again(site.number, node)
        return Healed(nodes=injected.nodes)

    def plainer(self) -> Iterator[Flap]:
        if self.times > 1:
            yield msgspec.structs.replace(self, times=1)


@pytest.fixture
def flap() -> Iterator[None]:
    register(Flap)
    yield
    del KINDS["flap"], formats.STRUCTS["flap"]


@pytest.mark.usefixtures("flap")
class TestNewFault:
    schedule = Schedule(faults=(Flap(on="n1", times=2, at_ms=10, for_ms=20),))

    def test_is_read_from_a_schedule(self) -> None:
        assert parse(self.schedule.to_json()) == self.schedule
        nested = msgspec.json.encode([self.schedule])
        assert msgspec.json.decode(nested, type=list[Schedule]) == [self.schedule]

    def test_is_refused_where_it_is_impossible(self) -> None:
        wrong = Schedule(faults=(Flap(on="n1", times=0, at_ms=1),))
        with pytest.raises(UsageError, match=r"fault 0 \(flap\): times must be positive"):
            parse(wrong.to_json())
        text = self.schedule.to_json().replace(b'"times":2', b'"times":"often"')
        with pytest.raises(UsageError, match=r"fault 0 \(flap\): times: expected `int`"):
            parse(text)

    def test_is_drawn(self) -> None:
        for seed in range(10):
            drawn = draw(Cluster(), Workload(), ["flap"], seed)
            assert {fault.what for fault in drawn} == {"flap"}
        assert "flap" in {fault.what for fault in draw(Cluster(), Workload(), ["all"], 1)}

    def test_is_injected_and_healed(self) -> None:
        storm = Storm(self.schedule)
        storm.run(99)
        assert storm.world.log == ["10 pause n1", "10 resume n1", "10 pause n1", "30 resume n1"]
        assert storm.record() == ["#0 inject n1: 2 times", "#0 heal n1"]

    def test_is_shrunk(self) -> None:
        tried = [plainer.faults[0] for plainer in shrink_passes.plainer_faults(self.schedule)]
        assert Flap(on="n1", times=1, at_ms=10, for_ms=20) in tried
        assert Flap(on="n1", times=2, at_ms=0, for_ms=20) in tried

    def test_is_drawn_on_a_page(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "store" / "flap" / "t")
        (folder / "schedule.json").write_bytes(self.schedule.to_json())
        storm = Storm(self.schedule)
        storm.world.now_ms = made.ZERO_US // 1000
        storm.injector.step(10)
        storm.world.now_ms += 20
        storm.injector.step(30)
        lines = b"".join(msgspec.json.encode(line) + b"\n" for line in storm.lines)
        (folder / "faults.jsonl").write_bytes(lines)
        page = reports.build(folder).read_text()
        assert '<i class="key f-flap">?F</i>' in page
        assert ".f-flap { background: color-mix(in srgb, #123456 38%" in page
        assert "Pause and resume n1 2 times at 0.010 s, for 20.0 ms: hit n1" in page


def test_a_change_of_version_has_words() -> None:
    assert faults.Upgrade(on="n1", version="2.15.1", at_ms=1).words() == "Upgrade n1 to 2.15.1"
    killed = faults.Downgrade(on="leader:log-0", how="kill", at_ms=1)
    assert killed.words() == "Kill, then downgrade the leader of log-0"


def test_what_is_not_registered_is_not_read() -> None:
    with pytest.raises(UsageError, match=r"fault 0: unknown fault 'flap' \(known: kill, power-cut"):
        parse(TestNewFault.schedule.to_json())


class TestEveryFault:
    """Rules for each class in the registry."""

    documented = (ROOT / "docs/faults.md").read_text("utf-8")
    read = (Path(__file__).parent / "scripts/reading.txt").read_text("utf-8")
    read = read.partition("== every kind of fault")[2]

    def example(self, name: str, at_ms: int = 1) -> FaultKind:
        """Return a fault of this kind with its required fields."""
        fields: dict[str, Any] = {
            "on": "n1",
            "to": "n2",
            "protocol": "kip-279",
            "percent": 50,
            "delay_ms": 5,
            "offset_ms": 5,
            "action": "delay",
            "event": "ack",
            "of": "other",
            "partition": "log-0",
            "replicas": "n2,n1",
            "min_isr": 1,
            "bytes_per_s": 1000,
        }
        kind = KINDS[name]
        own = {key: value for key, value in fields.items() if key in kind.__struct_fields__}
        return kind(at_ms=at_ms, **own)

    @pytest.mark.parametrize("name", KINDS)
    def test_has_words_a_colour_a_drawing_and_a_document(self, name: str) -> None:
        kind, fault = KINDS[name], self.example(name)
        assert f"\n{name} " in self.read.replace("\nread ", "\n"), "pages have words for it"
        assert kind.colour.startswith(("#", "var(--"))
        assert len(kind.letter) == 1
        assert kind.drawing, "how it is drawn, or why it never is"
        assert f"`{name}`" in self.documented
        assert kind.__doc__
        assert kind.__module__.startswith("nemesis.faults.")
        alone = Schedule(faults=(fault,))
        assert msgspec.json.decode(alone.to_json(), type=Schedule) == alone

    @pytest.mark.parametrize("name", KINDS)
    def test_has_plainer_forms(self, name: str) -> None:
        schedule = Schedule(faults=(self.example(name, at_ms=5),))
        forms = [plainer.faults for plainer in shrink_passes.plainer_faults(schedule)]
        assert forms
        assert schedule.faults not in forms

    def test_letters_differ(self) -> None:
        assert len({kind.letter for kind in KINDS.values()}) == len(KINDS)

    def test_places_in_the_scenarios_of_storms_differ(self) -> None:
        for row in ("delays_follower", "fails_leader", "restarts"):
            places = [p for drawing in storm_kinds().values() for p in getattr(drawing, row)]
            assert sorted(places) == list(range(len(places)))

    def test_names_of_groups_are_no_kinds(self) -> None:
        assert set(aliases()) == {"clock", "disk", "partition", "turn", "all"}
        assert not set(aliases()) & set(KINDS)

    def test_the_package_exports_every_kind(self) -> None:
        assert {kind.__name__ for kind in KINDS.values()} <= set(vars(faults))


@pytest.mark.parametrize("role", sorted({*ROLES} - {"clients", "voters", "controller"}))
def test_a_power_cut_of_any_role_counts_as_lost_copies(role: str) -> None:
    cluster = Cluster(brokers=3, replication_factor=3, min_isr=2, flush="async")
    others = (PowerCut(on="n1", at_ms=1), PowerCut(on="n2", at_ms=1))
    schedule = Schedule(cluster=cluster, faults=(PowerCut(on=role, at_ms=1), *others[:1]))
    assert outnumber_copies(schedule)
