"""Changes of members and versions, on a cluster that is a few lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.formats.run_info import MemberRecord
from harness.runs.clock import now_us
from harness.systems.adapter import Adapter, Members, Node, Refused
from harness.systems.external.membership import MemberChanges
from harness.systems.external.versions import Server
from nemesis.view import ClusterView
from nemesis.world import ClusterChange
from node.formats import trace
from node.formats.errors import FloodmarkError
from tests.support.waiting import until

SERVERS = tuple(Server(v, f"/{v}/server", v, "00") for v in ("2.9.1", "2.10.0", "2.8"))


class Rig:
    """The parts of a cluster, and an adapter whose nodes believe each order at once."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.up = {"n1", "n2", "n3"}
        self.listed = {"n1", "n2", "n3"}
        self.deaf: set[str] = set()
        self.refusing = ""
        self.errors: list[Exception] = []
        self.adds_running = False
        self.view = ClusterView()
        rig = self

        class Obedient(Adapter):
            change_ms, failover_ms = 200, 100
            operations = ("promote",)

            def admit(self, nodes: Sequence[Node], joining: Node) -> None:
                rig.log.append(f"admit {joining.identity}")
                if not rig.adds_running:
                    rig.listed.add(joining.identity)

            def change(
                self, nodes: Sequence[Node], want: Sequence[Node], partition: str, copies: int
            ) -> None:
                if rig.errors:
                    raise rig.errors.pop(0)
                if rig.refusing and not partition:
                    raise Refused(rig.refusing)
                names = [node.identity for node in want]
                if partition:
                    rig.place(partition, [node.name for node in want[:copies]])
                elif rig.adds_running:
                    rig.listed = {name for name in names if rig.has_started(name)}
                elif "success" not in rig.deaf:
                    rig.listed &= {*names}

            def members(self, me: Node) -> Members:
                return rig.said()[me.name][1]

            def operate(self, action: str, me: Node, nodes: Sequence[Node]) -> None:
                rig.log.append(f"{action} {me.name}")

        names = [f"n{number}" for number in range(1, 5)]
        self.nodes = {n: Node(n, Path(n), {}, {}, identity=n) for n in names}
        self.adapter = Obedient({})
        self.changes = MemberChanges(
            *(self.adapter, self.nodes, names, 3, self), view=self.view, servers=SERVERS, copies=3
        )

    def place(self, partition: str, replicas: list[str]) -> None:
        """Let these nodes, all of them in sync, have the replicas of a partition."""
        led = {"leader": replicas[0], "leader_epoch": 1, "partition_epoch": now_us()}
        sets = {"isr": replicas, "elr": [], "last_known_elr": [], "replicas": replicas}
        more = {"unclean": False, "adding": [], "removing": [], "min_isr": 1}
        told = trace.event(trace.PARTITION, partition, **led, **sets, **more)
        self.view.observe(told | {"node": replicas[0]})

    def has_started(self, identity: str) -> bool:
        return any(self.nodes[name].identity == identity for name in self.up)

    def start_node(self, node: str) -> None:
        self.log.append(f"start {self.nodes[node].identity} {self.changes.server_of(node)}")
        self.up.add(node)

    def end_node(self, node: str, *, kill: bool) -> None:
        if node in self.up:
            self.log.append(f"{'kill' if kill else 'stop'} {node}")
        self.up.discard(node)

    def empty_disk(self, node: str) -> None:
        self.log.append(f"empty {node}")

    def expect_end(self, node: str) -> None:
        pass

    def running(self) -> Collection[str]:
        return sorted(self.up)

    def said(self) -> Mapping[str, tuple[int, Members]]:
        told = Members(frozenset(self.listed))
        return {name: (now_us(), told) for name in self.up if name not in self.deaf}

    def do(self, what: Any, node: str = "", **more: Any) -> str:
        """Make a change; return how it ended."""
        number = self.changes.begin(ClusterChange(what, node, **more))

        def over() -> bool:
            self.changes.step()
            return self.changes.outcome(number) is not None

        until(over)
        outcome = self.changes.outcome(number)
        assert outcome is not None
        return outcome.what

    def heal(self) -> None:
        for _ in self.changes.heal():
            pass

    def record(self) -> MemberRecord:
        found = self.changes.record()
        assert found is not None
        return found


def test_a_spare_joins_with_an_empty_disk_and_leaves_again_at_the_final_heal() -> None:
    rig = Rig()
    assert rig.do("join", "n4") == "installed"
    assert rig.log == ["empty n4", "admit n4", "start n4 /2.9.1/server"]
    assert rig.changes.is_member("n4")
    rig.heal()
    assert rig.changes.members == ["n1", "n2", "n3"]
    assert rig.changes.has_left("n4")
    assert not rig.changes.may_run("n4")
    assert rig.log[-1] == "stop n4"


def test_a_node_that_was_emptied_has_a_new_name() -> None:
    rig = Rig()
    assert rig.do("replace", "n2", by="n2", alive=False) == "installed"
    assert rig.log == ["kill n2", "empty n2", "admit n2-1", "start n2-1 /2.9.1/server"]
    assert rig.nodes["n2"].identity == "n2-1"


@pytest.mark.parametrize(
    ("what", "node", "listed"),
    [("join", "n4", "n1 n2 n3 n4"), ("join", "n4", "n1 n2 n3"), ("leave", "n3", "n1 n2")],
)
def test_the_final_heal_undoes_an_unseen_change_that_comes_later_or_never(
    what: str, node: str, listed: str
) -> None:
    rig = Rig()
    rig.deaf = {"n4", "success"}
    assert rig.do(what, node) == "unseen", "an answer without a change is no change"
    assert rig.changes.members == ["n1", "n2", "n3"]
    rig.deaf.clear()
    rig.listed = {*listed.split()}
    rig.heal()
    rig.changes.note_listed()
    record = rig.record()
    assert not record.stuck
    assert set(record.final) == {"n1", "n2", "n3"}
    assert set(record.identities.values()) == rig.listed
    assert rig.up == {"n1", "n2", "n3"}


def test_a_system_may_add_only_a_node_that_runs() -> None:
    rig = Rig()
    rig.adds_running = True
    assert rig.do("join", "n4") == "installed"
    assert rig.listed == {"n1", "n2", "n3", "n4"}
    assert rig.do("replace", "n2", by="n2") == "installed"
    assert rig.listed == {"n1", "n2-1", "n3", "n4"}


def test_a_partition_that_lost_a_replica_to_a_leave_gets_it_back_with_the_next_join() -> None:
    rig = Rig()
    rig.place("log-0", ["n1", "n2", "n3"])
    assert rig.do("replace", "n2", by="n2") == "installed"
    assert set(rig.view.replicas("log-0")) == {"n1", "n2", "n3"}
    assert rig.do("leave", "n3") == "installed"
    assert set(rig.view.replicas("log-0")) == {"n1", "n2"}
    rig.heal()
    assert set(rig.view.replicas("log-0")) == {"n1", "n2", "n3"}


def test_replicas_that_a_refused_leave_took_come_back_at_the_final_heal() -> None:
    rig = Rig()
    rig.place("log-0", ["n1", "n2", "n3"])
    rig.refusing = "not now"
    assert rig.do("leave", "n3") == "refused"
    assert rig.changes.members == ["n1", "n2", "n3"]
    assert set(rig.view.replicas("log-0")) == {"n1", "n2"}
    rig.heal()
    assert set(rig.view.replicas("log-0")) == {"n1", "n2", "n3"}


@pytest.mark.parametrize(("unanswered", "restored"), [(0, False), (1, True)])
def test_a_move_that_was_refused_at_once_is_not_undone(unanswered: int, restored: bool) -> None:
    rig = Rig()
    rig.place("log-0", ["n1", "n2", "n3"])
    rig.errors = [TimeoutError()] * unanswered + [Refused("never"), Refused("at the heal")]
    assert rig.do("reassign", partition="log-0", replicas=("n2", "n3")) == "refused"
    rig.heal()
    assert bool(rig.record().stuck) is restored


def test_a_refusal_proves_nothing_of_an_earlier_attempt() -> None:
    rig = Rig()
    rig.errors = [TimeoutError(), Refused("a change is in progress")]
    assert rig.do("leave", "n3") == "refused"
    rig.listed = {"n1", "n2"}
    rig.heal()
    assert not rig.record().stuck
    assert rig.listed == {"n1", "n2", "n3-1"}


def test_a_join_that_is_refused_half_way_is_looked_at_again() -> None:
    """The system has taken the node in, and refuses the change that should follow."""
    rig = Rig()
    rig.refusing = "not now"
    assert rig.do("join", "n4") == "refused"
    rig.refusing = ""
    rig.heal()
    assert not rig.record().stuck


def test_a_member_that_was_taken_in_late_runs_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to the order never came, and the order takes effect after all."""
    rig = Rig()

    def late(nodes: Sequence[Node], joining: Node) -> None:
        raise TimeoutError

    monkeypatch.setattr(rig.adapter, "admit", late)
    assert rig.do("replace", "n2", by="n2") == "unseen"
    rig.listed.add(rig.nodes["n2"].identity)
    rig.heal()
    assert rig.up == {"n1", "n2", "n3"}


def test_versions_go_up_and_down_in_their_own_order() -> None:
    rig = Rig()
    assert rig.do("upgrade", "n1") == "installed"
    assert rig.changes.server_of("n1") == "/2.10.0/server"
    with pytest.raises(FloodmarkError, match="no other version"):
        rig.do("upgrade", "n1")
    assert rig.do("downgrade", "n2", kill=True) == "installed"
    assert rig.changes.server_of("n2") == "/2.8/server"
    assert "kill n2" in rig.log
    assert "stop n1" in rig.log
    rig.heal()
    assert {rig.changes.server_of(name) for name in ("n1", "n2", "n3")} == {"/2.10.0/server"}


def test_what_the_final_heal_cannot_restore_is_stuck() -> None:
    rig = Rig()
    rig.do("leave", "n3")
    rig.deaf = {"n1", "n2"}
    rig.heal()
    record = rig.record()
    assert record.stuck.startswith("n3 joining again took more than 600 ms")
    rig.changes.note_listed()
    assert not record.said


def test_the_lists_of_the_members_are_those_of_the_end() -> None:
    rig = Rig()
    rig.do("join", "n4")
    rig.heal()
    rig.listed.add("n4")
    rig.changes.note_listed()
    record = rig.record()
    assert record.final == ("n1", "n2", "n3")
    assert record.said == {name: ["n1", "n2", "n3", "n4"] for name in ("n1", "n2", "n3")}


def test_a_system_whose_nodes_tell_nothing_of_members_is_not_waited_for() -> None:
    rig = Rig()
    rig.deaf = {"n1", "n2", "n3"}
    type(rig.adapter).members = Adapter.members
    assert rig.do("operate", "n2", action="promote") == "installed"
    assert rig.log == ["promote n2"]
    rig.heal()
    assert not rig.record().stuck


def test_what_is_impossible_is_refused_before_it_begins() -> None:
    rig = Rig()
    rig.deaf = {"n1", "n2"}
    with pytest.raises(FloodmarkError, match="do not agree"):  # a minority confirms nothing
        rig.changes.begin(ClusterChange("leave", "n3"))
    rig.deaf.clear()
    for change in (ClusterChange("join", "n1"), ClusterChange("leave", "n4")):
        with pytest.raises(FloodmarkError, match=r"n4 is no member|n1 is a member already"):
            rig.changes.begin(change)
    rig.changes.begin(ClusterChange("leave", "n3"))
    with pytest.raises(FloodmarkError, match="another change"):
        rig.changes.begin(ClusterChange("join", "n4"))
