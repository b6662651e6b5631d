"""Which processes of a run may end by themselves: their disk is damaged, or a fault is on them."""

from __future__ import annotations


class ExpectedExits:
    """The processes that may end, by node and incarnation.

    What a disk has lost stays lost: after that, exits are expected to the end of the run. A fault
    that ends concerns only the processes that ran while it was in force.
    """

    def __init__(self) -> None:
        self._from: dict[str, int] = {}
        self._faults: dict[str, int] = {}
        self._processes: set[tuple[str, int]] = set()

    def from_now_on(self, node: str, incarnation: int) -> None:
        """Expect the end of this process of the node and of all later ones."""
        self._from[node] = min(incarnation, self._from.get(node, incarnation))

    def process(self, node: str, incarnation: int) -> None:
        """Expect the end of this one process."""
        self._processes.add((node, incarnation))

    def begin(self, node: str, incarnation: int) -> None:
        """Expect the ends of this process and of those that start before the fault `end`s."""
        self._faults[node] = self._faults.get(node, 0) + 1
        self.process(node, incarnation)

    def end(self, node: str) -> None:
        """Note that a fault of the node is over."""
        self._faults[node] = max(0, self._faults.get(node, 0) - 1)

    def started(self, node: str, incarnation: int) -> None:
        """Note that the node has another process."""
        if self._faults.get(node):
            self.process(node, incarnation)

    def covers(self, node: str, incarnation: int) -> bool:
        """Return whether this process may end by itself."""
        return (node, incarnation) in self._processes or incarnation >= self._from.get(
            node, incarnation + 1
        )
