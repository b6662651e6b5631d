"""Explorations: complete within small bounds, the same however they are made, and right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.explore.bounds import Bounds, ExploreRequest
from harness.explore.explorer import Exploration, Explorer
from harness.explore.invariants import Invariants
from harness.explore.local_steps import TOLD
from harness.explore.model import Action, Edge, Model, State
from harness.explore.run import explore
from harness.sim.invariant_checker import Violation
from node.formats import trace
from node.formats.errors import UsageError


def explored(bounds: Bounds, **options: bool) -> Exploration:
    return Explorer(bounds, **options).run()


@pytest.mark.parametrize("protocol", ["kafka", "kip-279", "quorum"])
def test_a_correct_protocol_has_no_counterexample_within_small_bounds(protocol: str) -> None:
    result = explored(Bounds(protocol=protocol, kills=1))
    assert result.outcome == "none"
    assert result.states > 50
    assert result.rounds == 3  # a record, a kill and a restart
    assert not result.counterexamples


@pytest.mark.integration
def test_merged_nodes_step_alike() -> None:
    """Fields that decide nothing have one value: with their own values nodes do the same."""
    explorer = Explorer(Bounds(kills=1), check=True)
    assert explorer.run().outcome == "none"
    differs = list(explorer.model.local.repeated())
    assert len(differs) > 100
    assert not any(differs)


def test_an_exploration_can_be_stopped() -> None:
    looks = iter(range(1000))
    assert Explorer(Bounds(kills=1)).run(stop=lambda: next(looks) >= 3).outcome == "stopped"


def test_an_exploration_ends_at_its_memory_bound() -> None:
    result = Explorer(Bounds(kills=1)).run(memory_mb=1)
    assert result.outcome == "memory"


def test_memory_that_was_needed_before_does_not_end_an_exploration() -> None:
    resident_mb = psutil.Process().memory_info().rss >> 20
    assert len(b"x" * (512 << 20)) == 512 << 20
    found = Explorer(Bounds(records=0)).run(memory_mb=resident_mb + 256)
    assert found.outcome == "none"


def test_compiled_code_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiled classes take neither views of nodes nor nodes made from values."""
    monkeypatch.setattr("harness.sim.compiled.in_use", lambda: True)
    with pytest.raises(UsageError, match="FLOODMARK_PURE=1"):
        explore(ExploreRequest(bounds=Bounds(), store=tmp_path))


# -- made-up states, to try the order of what is found --------------------------------------------


def graph(
    monkeypatch: pytest.MonkeyPatch, edges: dict[str, list[tuple[str, str, bool, bool]]]
) -> Explorer:
    """Make an exploration of a graph: by state, its actions with the state after each, whether it
    violates something, and whether it is counted."""
    states: dict[str, State] = {}

    def state(name: str) -> State:
        counted = name.count("+")
        return states.setdefault(name, State((len(states),), (), (), (), (-counted,), 0))

    def of(at: State) -> Iterator[Edge]:
        for name, found in edges.items():
            if state(name) == at:
                for action, after, violates, costs in found:
                    violation = Violation("read-below-hw", 0, 0, action) if violates else None
                    yield Edge((action,), state(after), violation, costs)

    made = Explorer(Bounds())
    monkeypatch.setattr(made.model, "boot", lambda: state("first"))
    monkeypatch.setattr(made.model, "edges", of)
    return made


LATE_STEP = ("step", "second", False, False)
KILL = ("kill", "first+", True, True)


@pytest.mark.parametrize(
    ("edges", "states", "counted", "actions"),
    [
        pytest.param(
            {
                "first": [("early", "known", False, False), ("late", "other", False, False)],
                "other": [("wrong", "known", True, False)],
            },
            *(3, 0, (("late",), ("wrong",))),
            id="on the way to a known state",
        ),
        pytest.param(
            {"first": [KILL, LATE_STEP], "second": [("step", "third", True, False)]},
            *(2, 0, (("step",), ("step",))),
            id="more steps come before more actions",
        ),
        pytest.param(
            {"first": [KILL, LATE_STEP], "second": [("step", "third", False, False)]},
            *(3, 1, (("kill",),)),
            id="one action more, after its round",
        ),
    ],
)
def test_the_first_violation_is_the_one_with_the_fewest_actions(
    monkeypatch: pytest.MonkeyPatch,
    edges: dict[str, list[tuple[str, str, bool, bool]]],
    states: int,
    counted: int,
    actions: tuple[Action, ...],
) -> None:
    result = graph(monkeypatch, edges).run()
    assert (result.outcome, result.states) == ("violation", states)
    found = [(each.counted, each.actions) for each in result.counterexamples]
    assert found == [(counted, actions)]


# -- what can happen ------------------------------------------------------------------------------


def actions_at_rest(moves: Model) -> list[Action]:
    return [edge.action for edge in moves.edges(moves.boot())]


def test_a_process_may_end_in_the_turn_of_a_long_wait() -> None:
    moves = Model(Bounds(crashes=1, kills=1))
    state, _ = moves.apply(moves.boot(), ("kill", 2, "kills"))
    state = moves._at_rest(state)
    assert ("crash", ("expire", 0, ("session/n2",))) in [e.action for e in moves.edges(state)]


def test_states_that_come_again_for_ever_are_all_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    """If waits lead round in a circle, there is no last state to act in."""
    moves = Model(Bounds(records=0))
    waits = ("expire", 0, ("wait/__cluster_metadata-0/n1", "wait/__cluster_metadata-0/n2"))
    assert waits not in actions_at_rest(moves)
    moves = Model(Bounds(records=0))
    monkeypatch.setattr(moves._waits, "is_circular", lambda nodes, cuts: True)
    assert waits in actions_at_rest(moves)


def test_each_message_that_invariants_read_is_passed_to_them() -> None:
    checker = Invariants(Bounds())._checker
    assert {*checker._handlers, trace.BROKER} == TOLD
