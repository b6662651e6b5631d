"""The leaders that one client believes in, and the times at which it asks again (pure).

Beliefs come from metadata answers, which may be old, and from the leader that a refusal names. A
belief that proved wrong is dropped but its epoch is kept, so that an older answer cannot restore
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ASK_TIMEOUT_US = 250_000
NEVER_US = 1 << 62


class MetadataCache:
    """One client's view of the leaders, learned from any broker that answers."""

    def __init__(self, brokers: Sequence[str], first: int, retry_us: int) -> None:
        """Asks `brokers` in turn, beginning with number `first`, every `retry_us` at most."""
        self._brokers = list(brokers)
        self._turn = first % len(self._brokers)
        self._retry_us = retry_us
        self._known: dict[str, tuple[str, int]] = {}
        self._outstanding = 0
        self._asked_us = -NEVER_US
        self.wanted = True

    def leader(self, partition: str) -> str:
        """Return the believed leader, "" when unknown."""
        return self._known.get(partition, ("", -1))[0]

    def forget(self, partition: str, node: str) -> None:
        """Drop the belief that `node` leads, since it refused or did not answer, and ask again."""
        leader, epoch = self._known.get(partition, ("", -1))
        if leader == node:
            self._known[partition] = ("", epoch)
        self.wanted = True

    def hint(self, partition: str, leader: str, *, refused_by: str) -> None:
        """Believe the leader that a refusal named, unless that is the refusing broker itself."""
        epoch = self._known.get(partition, ("", -1))[1]
        if leader and leader != refused_by and leader in self._brokers:
            self._known[partition] = (leader, epoch)

    def refresh(self, now_us: int, every_us: int) -> None:
        """Ask for metadata again if the last request is `every_us` ago. A client that no broker
        refuses would never ask otherwise."""
        if now_us - self._asked_us >= every_us:
            self.wanted = True

    def learn(self, corr: int, leaders: Mapping[str, tuple[str, int]]) -> None:
        """Store the leaders of a metadata answer, except those with an older epoch than the known
        ones. `corr` is the number of the request."""
        for partition, (leader, epoch) in leaders.items():
            if epoch >= self._known.get(partition, ("", -1))[1]:
                self._known[partition] = (leader, epoch)
        if corr == self._outstanding:
            self._outstanding = 0
            self.wanted = False

    def whom_to_ask(self, now_us: int, corr: int) -> str:
        """Return the broker to ask now in request number `corr`; "" if there is none yet."""
        if not self.wanted or now_us < self.next_ask_us():
            return ""
        broker = self._brokers[self._turn]
        self._turn = (self._turn + 1) % len(self._brokers)
        self._outstanding, self._asked_us = corr, now_us
        return broker

    def next_ask_us(self) -> int:
        """Return the time at which `whom_to_ask` next names a broker; NEVER_US if nothing is to be
        asked."""
        if not self.wanted:
            return NEVER_US
        wait = ASK_TIMEOUT_US if self._outstanding else self._retry_us
        return self._asked_us + wait
