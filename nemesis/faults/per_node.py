"""Faults that act on each node by itself under a number of the world's: those of disks and of
system calls."""

from __future__ import annotations

from collections.abc import Callable

from nemesis.faults.kind import Effect, Healed, Injected, Site
from nemesis.processes import CannotAct
from node.formats.errors import FloodmarkError


def heal_each(injected: Injected, mend: Callable[[str, int], int], counted: str) -> Healed:
    """Heal each node of an injected fault, even if another one fails. `mend(node, number)` undoes
    one effect and returns a count; their sum is reported as the field `counted` of the
    `FaultLine`."""
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
    """Act on each node of the site, and keep the numbers that `act` returns. Raises FloodmarkError
    if it failed on all of them."""
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
