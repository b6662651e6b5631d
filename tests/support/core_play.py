"""A play: real brokers moved through one story, told line by line, and judged by the checker.

The cluster is three brokers and a voter in `ChaosWorld`; every message takes one millisecond. The
story says who is cut off, which message is held, who dies and what a disk forgets; what the
brokers make of it is told from their own trace, one line each:

    n1 leads epoch 1, ISR n1 n2 n3      the controller committed a leader, an ISR or an ELR
    b is acknowledged at 1              the leader told the client so; `not as committed`: acks=1
    n3 cuts 2 -> 1                      a follower truncated
    read: a b                           what a consumer at the leader was given
    - n2 dies                           what the story does

At the end everybody is healed, and a run folder is made of histories, traces and logs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checker.formats.anomalies import KINDS
from harness.formats.history import LogRun, Run
from node.core import batch as batches
from node.core.bugs import KNOWN_BUGS, KnownBug
from node.core.messages import (
    AdminRequest,
    AdminResponse,
    AnyMessage,
    ElectLeader,
    Error,
    FetchRequest,
    FetchResponse,
    ProduceResponse,
    ReassignReplicas,
)
from node.core.wire import split_fetch_body
from node.formats.trace import METADATA_PARTITION
from tests.support.checker.story import Story, against
from tests.support.core_chaos import ChaosWorld

P = "log-0"
NAMES = ("n1", "n2", "n3")
Rule = Callable[[str, str, AnyMessage], bool]


@dataclass(frozen=True)
class Bug:
    """A bug of the museum, on or off."""

    exhibit: KnownBug
    on: bool


class Play:
    """One story. n1 leads epoch 1, all are in sync, and record `a` is committed everywhere."""

    def __init__(
        self,
        bug: Bug,
        *,
        min_isr: int = 2,
        flush_ms: int = 0,
        unclean: bool = False,
        protocol: str = "",
        seed: int = 7,
    ) -> None:
        self.world = ChaosWorld(
            seed,
            latency_us=(1000, 1000),
            check_invariants=False,
            protocol=protocol or bug.exhibit.protocol,
            flush_interval_ms=flush_ms,
            unclean_election=unclean,
            bugs=(bug.exhibit.name,) if bug.on else (),
        )
        self.lines: list[str] = []
        self.promise = {"flush": "async" if flush_ms else "sync", "unclean_election": unclean}
        self._told = 0
        self._state: dict[str, Any] = {}
        self._sent: list[tuple[str, int]] = []
        self._acked: dict[int, int] = {}
        self._reads: list[tuple[int, list[tuple[int, str]], int]] = []
        self._holding: list[Rule] = []
        self._dropping: list[Rule] = []
        self.world.hold = lambda *m: any(rule(*m) for rule in self._holding)
        self.world.drop = lambda *m: any(rule(*m) for rule in self._dropping)
        self.world.run_for(500)
        self.world.create_topic(min_isr=min_isr)
        self.world.mail.clear()
        self.wait(100)
        self.write("a")
        self.wait(300)
        assert self.world.leader(P) == "n1"

    # -- what clients do ---------------------------------------------------------------------------

    def write(self, *texts: str, to: str = "", acks: int = -1) -> None:
        """One batch of one record each, to whoever leads; 20 ms pass."""
        for text in texts:
            self._sent.append((text, acks))
            leader = to or self.world.leader(P)
            assert leader
            self.world.produce(leader, P, len(self._sent), text.encode(), acks=acks)
        self.wait(20)

    def read(self, at: str = "") -> None:
        """A consumer reads everything it is given."""
        leader = at or self.world.leader(P)
        assert leader
        request = FetchRequest(partition=P, offset=0, corr=-1)
        self.world.send(leader, request)
        self.wait(5)
        source, message, body = next(
            m for m in reversed(self.world.mail) if isinstance(m[1], FetchResponse)
        )
        assert (source, message.error) == (leader, Error.NONE)  # type: ignore[union-attr]
        _, hw, data = split_fetch_body(body)
        records = [(one.base_offset, one.payload.decode()) for one in batches.split(data)]
        self._reads.append((self.world.now_us, records, hw))
        self._say("read: " + " ".join(text for _, text in records))

    # -- what happens to brokers -------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        """Time passes, and what happens in it is told."""
        self.world.run_for(ms)
        self._tell()

    def kill(self, *names: str, wait_ms: int = 2000) -> None:
        """Die all at once; two seconds pass, so that the controller has noticed."""
        self._say(f"- {' and '.join(names)} die{'s' if len(names) == 1 else ''}")
        for name in names:
            self.world.kill(name)
        self.wait(wait_ms)

    def start(self, name: str, wait_ms: int = 500) -> None:
        self._say(f"- {name} starts")
        self.world.start(name)
        self.wait(wait_ms)

    def flush(self) -> None:
        """Every disk has now what it was given (flush=async)."""
        for disk in self.world.lossy.values():
            disk.flush()

    def power_cut(self, name: str, wait_ms: int = 2000) -> None:
        """Die, and lose every write that was not flushed."""
        before = len(self.world.payloads(name, P))
        self.world.kill(name)
        self.world.lossy[name].power_cut(0)
        lost = before - len(self.world.payloads(name, P))
        self._say(f"- power fails at {name}: it loses {lost} of its records")
        self.wait(wait_ms)

    def cut(self, *pairs: str) -> None:
        """No messages between these: `n1-v1` both ways, `v1>n1` one way."""
        for pair in pairs:
            a, b = pair.replace(">", "-").split("-")
            self.world.cut |= {(a, b)} if ">" in pair else {(a, b), (b, a)}
        self._say(f"- cut: {' '.join(pairs)}")

    def mend(self) -> None:
        """All links work again."""
        self.world.cut.clear()
        self._say("- links mended")

    def isolate(self, name: str, wait_ms: int = 2000) -> None:
        """Reach nobody but clients, until the controller has noticed."""
        self._say(f"- {name} is cut off")
        self.world.isolate(name)
        self.wait(wait_ms)

    def lag(self, name: str) -> None:
        """A follower that cannot reach its leader while something is written leaves the ISR."""
        self.cut(f"{self.world.leader(P)}-{name}")
        self.write("b", acks=1)
        self.wait(2500)

    def move(self, replicas: str) -> None:
        """The partition is to be on these brokers, in this order; the first one is preferred."""
        self._say(f"- to be moved to {replicas}")
        self._command(ReassignReplicas(partition=P, replicas=tuple(replicas.split())))

    def elect_preferred(self) -> None:
        self._say("- the preferred replica is to lead")
        self._command(ElectLeader(partition=P))

    def _command(self, command: AdminRequest) -> None:
        self.world.send("v1", command)
        self.wait(20)
        _, answer, _ = self.world.mail.pop()
        assert isinstance(answer, AdminResponse)
        assert not answer.error, answer

    def stop(self, name: str, wait_ms: int = 20) -> None:
        """Ask a broker to take leave; what it led is handed over at once."""
        self._say(f"- {name} is asked to stop")
        self.world.stop(name)
        self.wait(wait_ms)

    def hold(self, text: str, rule: Rule) -> None:
        """Such messages are held from now on."""
        self._say(f"- held: {text}")
        self._holding.append(rule)

    def drop(self, text: str, rule: Rule) -> None:
        """Such messages are lost from now on."""
        self._say(f"- lost: {text}")
        self._dropping.append(rule)

    def release(self, first: int = 0, *, wait_ms: int = 100) -> None:
        """What was held arrives, and nothing is held any longer; with `first`, only the oldest so
        many arrive, and the rest waits for another `release`."""
        self._holding.clear()
        held = self.world.held
        now, later = (held[:first], held[first:]) if first else (held, [])
        kinds = sorted({_kind(m[2]) for m in now})
        self._say(f"- arrives: {'the first ' if first else ''}{' '.join(kinds) or 'nothing'}")
        self.world.held = now
        self.world.release()
        self.world.held = later
        self.wait(wait_ms)

    def allow(self, wait_ms: int = 500) -> None:
        """Nothing is lost any longer."""
        self._dropping.clear()
        self._say("- nothing is lost any longer")
        self.wait(wait_ms)

    def heal(self) -> None:
        """Nothing is in the way any more, nothing held arrives, everybody runs: six seconds. Then
        one more write, and a consumer reads everything."""
        self._say("- all healed")
        self._holding.clear()
        self._dropping.clear()
        self.world.held.clear()
        self.world.heal()
        self.wait(6000)
        self.write("z")
        self.read()

    # -- the story, told ---------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        self.lines.append(line)

    def text(self) -> str:
        """The story so far."""
        return "\n".join(self.lines)

    def _tell(self) -> None:
        fresh, self._told = self.world.trace[self._told :], len(self.world.trace)
        for e in fresh:
            if e.get("partition") != P:
                continue
            if e["event"] == "partition":
                self._tell_change(e)
            elif e["event"] == "truncated" and e["leo"] < e["from_leo"]:
                self._say(f"{e['node']} cuts {e['from_leo']} -> {e['leo']}")
            elif e["event"] == "ack" and e["client"] == "c1":
                self._tell_ack(e)

    def _tell_change(self, e: dict[str, Any]) -> None:
        now = {f: e[f] for f in ("leader", "isr", "elr")}
        if now == self._state:
            return
        who = f"{e['leader']} leads epoch {e['leader_epoch']}" if e["leader"] else "nobody leads"
        elr = f", ELR {' '.join(e['elr'])}" if e["elr"] else ""
        self._say(f"{who}, ISR {' '.join(e['isr']) or '-'}{elr}")
        self._state = now

    def _tell_ack(self, e: dict[str, Any]) -> None:
        offset = e["base_offset"]
        _, data = self.world.disks[e["node"]].logs[P][offset]
        alone = "" if e["acks"] == -1 else ", not as committed"
        self._say(f"{batches.view(data).payload.decode()} is acknowledged at {offset}{alone}")

    # -- the verdict -------------------------------------------------------------------------------

    def judge(self, folder: Path) -> dict[str, str]:
        """What the checker holds against this run: anomaly -> property."""
        run = {
            "promise": {
                "acks": -1,
                "durable_acks": not self.promise["unclean_election"],
                "contiguous_offsets": True,
                **self.promise,
            }
        }
        story = Story(P, recovery_limit_ms=1, **run)
        story.run["phases"] = {"start_us": 1, "storm_us": 1000}
        self._history(story)
        for e in self.world.trace:
            story.traces[e["node"]].append({"incarnation": 1, **e})
        for node in NAMES:
            self._log(story, node)
        found = against(story.check(folder))
        return {name: KINDS[name].property for name in found}

    def _history(self, story: Story) -> None:
        answers = self.world.answers()
        for number, (_, acks) in enumerate(self._sent, 1):
            answer: ProduceResponse | None = answers.get(number)
            outcome: Any = None
            if answer is not None:
                outcome = "info" if answer.appended else "fail"
                outcome = outcome if answer.error else "ok"
            at = answer.base_offset if answer and not answer.error else -1
            story.send(number, at=at, outcome=outcome, acks=acks)
        for _, records, hw in self._reads:
            runs = [(offset, self._value(text)) for offset, text in records]
            story.poll(*runs, start=0, hw=hw, process=100 + story.ops)

    def _value(self, text: str) -> int:
        return next(n for n, (sent, _) in enumerate(self._sent, 1) if sent == text)

    def _log(self, story: Story, node: str) -> None:
        """The replica's log as it is on disk now."""
        replica = self.world.nodes[node].replicas.get(P)
        if replica is None:
            return  # the partition has moved away from here
        runs = story.logs[node]
        runs.append(
            LogRun(
                node=node,
                partition=P,
                offset=0,
                count=0,
                hw=replica.hw,
                leo=replica.leo,
                epochs=tuple(replica.log.cache.entries()),
            )
        )
        for base, (chain, data) in sorted(self.world.disks[node].logs.get(P, {}).items()):
            one = batches.view(data)
            value = self._value(one.payload.decode())
            runs.append(
                LogRun(
                    node=node,
                    partition=P,
                    offset=base,
                    count=one.count,
                    epoch=one.epoch,
                    hash=chain.hex(),
                    records=(Run(base, value, one.count),),
                )
            )


def _kind(message: AnyMessage) -> str:
    return str(message.__struct_config__.tag)


# -- rules on messages -----------------------------------------------------------------------------


def kind(name: str, source: str = "", to: str = "", **fields: Any) -> Rule:
    """Messages of a kind on a link, about the data partition if about any; with these fields."""

    def matches(a: str, b: str, message: AnyMessage) -> bool:
        if getattr(message, "partition", P) != P or _kind(message) != name:
            return False
        return (
            source in ("", a)
            and to in ("", b)
            and all(getattr(message, f) == value for f, value in fields.items())
        )

    return matches


def diverging(to: str) -> Rule:
    """Answers that tell `to` where its log diverges."""
    return lambda a, b, m: b == to and isinstance(m, FetchResponse) and m.diverging is not None


def metadata(to: str) -> Rule:
    """What would bring `to` new metadata; heartbeats go on."""
    return lambda a, b, m: (
        b == to and isinstance(m, FetchResponse) and m.partition == METADATA_PARTITION
    )


def commits(to: str) -> Rule:
    """What tells `to` of no new metadata, only that what it has is committed."""
    return lambda a, b, m: (
        metadata(to)(a, b, m) and isinstance(m, FetchResponse) and m.offset == m.log_end
    )


# -- with the bug and without it -------------------------------------------------------------------


def shows(
    code: str, story: Callable[[Bug], Play], folder: Path, told: str, *anomalies: str
) -> None:
    """The story, with the bug on, goes as `told` and breaks what the catalogue says, among it
    these anomalies; with the bug off the checker finds nothing to hold against it."""
    exhibit = next(e for e in KNOWN_BUGS if e.code == code)
    broken = story(Bug(exhibit, on=True))
    found = broken.judge(folder / "broken")
    assert broken.text() == inspect.cleandoc(told)
    assert exhibit.breaks in found.values(), found
    assert set(anomalies) <= set(found), found
    correct = story(Bug(exhibit, on=False))
    assert correct.judge(folder / "correct") == {}, correct.text()
