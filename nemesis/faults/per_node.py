"""Faults of which the world has one for each node, by a number: those of disks and of system
calls."""

from __future__ import annotations

from collections.abc import Callable

from nemesis.faults.kind import Effect, Healed, Injected, Site
from nemesis.processes import CannotAct
from node.formats.errors import FloodmarkError


def heal_each(injected: Injected, mend: Callable[[str, int], int], counted: str) -> Healed:
    """Heal each node, even if another one fails. `mend(node, number)` returns a count, which is
    added to the field `counted` of the `FaultLine`."""
    affected, notes, failed = 0, [], []
    for number, node in injected.per_node.items():
        try:
            affected += mend(node, number)
        except CannotAct as error:
            notes.append(str(error))
        except FloodmarkError as error:
            failed.append(f"{node}: {error}")
    return Healed(
        nodes=injected.nodes,
        detail="; ".join((*notes, *failed)),
        failed=tuple(failed),
        effect=Effect(nodes=injected.nodes, counts={counted: affected}),
    )


def on_each(site: Site, act: Callable[[str], int]) -> Injected:
    """Act on each node; the numbers that the world gives. Raises FloodmarkError when that was
    possible with none."""
    numbers: dict[int, str] = {}
    refused = []
    for node in site.nodes:
        try:
            if node[0] == "c":
                raise CannotAct(f"{node} is a client: only its links can fail")
            numbers[act(node)] = node
        except FloodmarkError as error:
            refused.append(str(error))
    if not numbers:
        raise CannotAct("; ".join(refused))
    return Injected(nodes=tuple(numbers.values()), per_node=numbers, detail="; ".join(refused))
