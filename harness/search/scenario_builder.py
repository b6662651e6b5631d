"""An experiment being drawn: what it is about, how far it has come, and when the next act is due.

The acts themselves are in `acts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from harness.search.choice_source import Chooser
from nemesis.formats.schedule import After, Cluster, Fault

LAST_MOMENT_MS: Final = 1500
"""No act is timed later; what follows an event may come later still."""

When = dict[str, Any]


@dataclass
class Scene:
    """An experiment being drawn.

    `partition` is where things happen; `felt` are the events by which the last act is felt;
    `held` names the rules that hold messages; `elections` counts the leaders that must have taken
    over so far; `preferred` is the replica that is to lead when all is well; `victim` is the broker
    that most acts on a broker strike.
    """

    choose: Chooser
    cluster: Cluster
    partition: str
    votes: bool
    now_ms: int = 0
    elections: int = 0
    crashes: int = 0
    preferred: str = "n1"
    victim: str = ""
    felt: list[After] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def leader(self) -> str:
        """The leader of the moment, as a target."""
        return f"leader:{self.partition}"

    @property
    def replicas(self) -> tuple[str, ...]:
        """The brokers that hold the partition at the beginning."""
        return self.cluster.broker_names()[: self.cluster.replication_factor]

    def broker(self, but: str = "") -> str:
        """One broker by name, as a rule the one of before; seldom the first where it leads at
        the beginning as a rule."""
        if self.victim and self.victim != but and self.choose.chance(60):
            return self.victim
        names = self.replicas if self.choose.chance(90) else self.cluster.broker_names()
        if not (self.votes or but or self.choose.chance(15)) and len(names) > 1:
            names = names[1:]
        chosen = self.choose.pick([name for name in names if name != but] or list(names))
        self.victim = self.victim or chosen
        return chosen

    def when(self, *, arming: bool = False) -> When:
        """The moment of the next act: felt from the last one, or some time after it; what is only
        `arming` something comes at once as often."""
        choose = self.choose
        if arming and choose.chance(50):
            return {"at_ms": self.now_ms}
        if self.felt and choose.chance(60):
            after = choose.pick(self.felt)
            return later({"after": after}, choose.pick((0, 0, 0, 0, 2, 10, 30, 70, 120, 250)))
        if choose.chance(15 if self.faults else 40):
            return {"after": self._any_moment()}
        self.now_ms += choose.pick((5, 30, 80, 150, 300))
        self.now_ms = min(self.now_ms, LAST_MOMENT_MS)
        return {"at_ms": self.now_ms}

    def _any_moment(self) -> After:
        """When something is written, committed, acknowledged or cut for the n-th time."""
        choose = self.choose
        events = ["append", "hw", "ack", "append", "hw"]
        if self.faults:  # before that nobody has a reason to
            events += ["vote", "vote"] if self.votes else ["isr", "proposed"]
            events.append("truncated")
        event = choose.pick(events)
        match: dict[str, Any] = {"partition": self.partition}
        if event in ("append", "hw"):
            match["role"] = choose.pick(("leader", "follower"))
        most = 6 if event in ("ack", "append", "hw") else 2
        delay_ms = choose.pick((0, 0, 1, 5, 30))
        return After(event=event, match=match, nth=choose.integer(1, most), delay_ms=delay_ms)

    def span_ms(self, *percents: int) -> int:
        """How long, in percent of the time after which the cluster takes notice."""
        timings = self.cluster.timings
        # Where replicas vote, the patience of a voter is what silence is measured by.
        timeout = (
            timings.election_max_ms
            if self.votes
            else self.choose.pick((timings.session_ms, min(timings.lag_ms, timings.session_ms)))
        )
        return timeout * self.choose.pick(percents) // 100

    def takes(self, ms: int) -> None:
        """So long it is, more or less, until an act is felt."""
        self.now_ms = min(self.now_ms + min(ms, 600), LAST_MOMENT_MS)

    def feel_election(self) -> None:
        """The act just drawn brings about another leader, as a rule."""
        self.elections += 1
        timings = self.cluster.timings
        self.takes(timings.election_max_ms if self.votes else timings.session_ms)
        at, nth, choose = self.partition, self.elections, self.choose
        leads = After(event="role", match={"partition": at, "role": "leader"}, nth=nth)
        writes = {"partition": at, "leader_epoch": {"at_least": nth + 1}}
        self.felt = [
            leads,
            leads,
            leads,
            After(event="append", match={**writes, "role": "leader"}, nth=choose.integer(1, 2)),
            After(event="hw", match=writes, nth=choose.integer(1, 2)),
            After(event="partition", match={"partition": at}, nth=choose.integer(1, 3)),
            After(event="truncated", match={"partition": at}, nth=choose.integer(1, 2)),
            After(event="diverging", match={"partition": at}),
        ]

    def in_office(self, delay_ms: int = 0) -> When:
        """When the leader of the last election leads; now, if there was none."""
        if not self.elections:
            return later({"at_ms": self.now_ms}, delay_ms)
        match = {"partition": self.partition, "role": "leader"}
        after = After(event="role", match=match, nth=self.elections, delay_ms=delay_ms)
        return {"after": after}

    def feel_isr(self) -> None:
        """The act just drawn changes the in-sync set, as a rule."""
        self.takes(self.cluster.timings.lag_ms)
        match, choose = {"partition": self.partition}, self.choose
        self.felt = [
            After(event=event, match=match, nth=choose.integer(1, 3))
            for event in ("proposed", "partition", "isr")
        ]
        if choose.chance(30):
            self.felt.append(
                After(event="append", match={**match, "role": "leader"}, nth=choose.integer(1, 4))
            )


def later(when: When, delay_ms: int) -> When:
    """So much after a moment."""
    if "at_ms" in when:
        return {"at_ms": when["at_ms"] + delay_ms}
    after: After = when["after"]
    return {
        "after": After(
            event=after.event, match=after.match, nth=after.nth, delay_ms=after.delay_ms + delay_ms
        )
    }
