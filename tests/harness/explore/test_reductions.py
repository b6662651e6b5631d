"""Reductions hide nothing: what is found without them is found with them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from harness.explore.bounds import Bounds
from harness.explore.explorer import Explorer, KnownStates
from harness.explore.model import STEP, Model, State

# -- the same states ------------------------------------------------------------------------------


def summary(moves: Model, state: State) -> Any:
    """Return a state as an observer of replicas, messages and invariants sees it."""
    nodes = []
    for number in state.nodes:
        view = moves.local.views[number]
        replicas = [
            (name, r.role, r.leader, r.leader_epoch, r.leo, r.hw, r.isr, r.maximal_isr)
            for name, r in sorted(view.replicas.items())
        ]
        nodes.append((view.up, view.ctx, view.fenced, tuple(replicas)))
    messages = [
        (a, b, moves.local.messages[m])
        for a, b, m in state.queue
        if moves.local.views[state.nodes[b]].up
    ]
    return tuple(nodes), tuple(messages), state.cuts, moves.invariants.memories[state.memory]


def found(bounds: Bounds, *, reduced: bool) -> tuple[set[Any], set[Any]]:
    """All states that an exploration comes through, with a choice or without one, and the
    violations with their numbers of actions."""
    made = Explorer(bounds, reduced=reduced)
    states: set[Any] = set()
    after = made.model._after

    def passed(*what: Any) -> tuple[State, Any]:
        state, violation = after(*what)
        states.add(summary(made.model, state))
        return state, violation

    made.model._after = passed  # type: ignore[method-assign]
    result = made.run(more=1000)
    return states, {(c.counted, c.invariant, c.sentence) for c in result.counterexamples}


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(Bounds(kills=1, losses=1), marks=pytest.mark.nightly),
        Bounds(protocol="kip-279", kills=1, records=0),
        Bounds(protocol="quorum", kills=1, records=0),
        pytest.param(Bounds(delays=1, elections=1), marks=pytest.mark.nightly),
        pytest.param(Bounds(cuts=1, kills=1), marks=pytest.mark.nightly),
        Bounds(bugs=("elect-any-replica",), kills=2),
        Bounds(bugs=("ack-before-isr",), kills=1, losses=1),
    ],
)
def test_the_same_states_and_violations_are_found_without_the_reductions(bounds: Bounds) -> None:
    """A round of messages that changes nothing is not interrupted, so some states with messages
    under way are no choice; the nodes come to the same. States are not compared after a violation,
    which ends an exploration at its depth."""
    states, violations = found(bounds, reduced=True)
    all_states, all_violations = found(bounds, reduced=False)
    assert violations == all_violations
    if violations:
        return
    assert states <= all_states
    assert {nodes for nodes, *_ in states} == {nodes for nodes, *_ in all_states}


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(fencings=1),
        pytest.param(Bounds(fencings=1, elections=1), marks=pytest.mark.nightly),
        pytest.param(Bounds(fencings=1, kills=1), marks=pytest.mark.nightly),
    ],
)
def test_each_two_nodes_come_to_the_same_states_while_a_broker_is_cut_off(bounds: Bounds) -> None:
    """A broker that is cut off asks again and again, and a record may come just before each time.
    With the reductions it comes at the next step of the leader, when a third node may have gone on
    (rule 3 of docs/explore.md). So each two nodes are equal, and the memory."""
    states, violations = found(bounds, reduced=True)
    all_states, all_violations = found(bounds, reduced=False)
    assert violations == all_violations == set()
    assert states <= all_states
    for one, other in itertools.combinations(range(3), 2):
        pairs, all_pairs = (
            {(nodes[one], nodes[other]) for nodes, *_ in each} for each in (states, all_states)
        )
        assert pairs == all_pairs
    assert {memory for *_, memory in states} == {memory for *_, memory in all_states}


# -- what counts as no more -----------------------------------------------------------------------


def added(known: KnownStates, round_: int, held: tuple[Any, ...], left: tuple[int, ...]) -> bool:
    state = State((1,), (), held, (), left, 0)
    number = known.add(b"key", state, round_, before=-1, action=STEP, costs=True)
    return number is not None


def test_a_state_of_which_no_more_may_happen_is_not_followed() -> None:
    known = KnownStates()
    assert added(known, 1, (), (1, 1))
    assert not added(known, 1, (), (1, 1))
    assert not added(known, 2, (), (1, 0))
    assert added(known, 2, (), (2, 0))


def test_a_state_that_took_fewer_actions_is_followed() -> None:
    known = KnownStates()
    assert added(known, 2, (), (1, 1))
    assert added(known, 1, (), (1, 0))
    assert added(known, 1, (), (1, 1))


def test_a_late_message_that_may_still_arrive_is_more() -> None:
    known = KnownStates()
    assert added(known, 1, ((0, 1, 5),), (1,))
    assert not added(known, 1, (), (1,))
    assert added(known, 1, ((0, 1, 5), (0, 1, 5)), (1,))
    assert not added(known, 1, ((0, 1, 5),), (1,))


def test_a_covered_state_that_was_put_off_is_not_followed() -> None:
    known = KnownStates()
    lost = State((1,), (), (), (), (0,), 0)
    known.add(b"key", lost, 2, before=-1, action=("lose",), costs=True)
    assert not known.is_covered(b"key", lost, 2)
    assert added(known, 1, (), (1,))
    assert known.is_covered(b"key", lost, 2)


# -- bounds that leave something out --------------------------------------------------------------


def test_calm_bounds_leave_nodes_alone_while_messages_are_under_way() -> None:
    moves = Model(Bounds(kills=1, losses=1, calm=True))
    state = next(e.state for e in moves.edges(moves.boot()) if e.action[0] == "send")
    assert state.queue
    assert {edge.action[0] for edge in moves.edges(state)} == {"lose", "step"}
    assert "kill" in {edge.action[0] for edge in moves.edges(moves._at_rest(state))}
