"""Real brokers under virtual time: a stage of scripts, whose runs the checker can judge.

At the beginning n1 leads epoch 1, all are in sync, and record `a` is committed at offset 0. Each
message takes one millisecond. The output has each leader, ISR and ELR that the controller commits,
truncated and deleted records, acknowledgements and refusals. A script of a known bug
(tests/node/core/known_bugs/NAME.txt) has two lines more:

    bug M22                             or `none`: correct brokers
    finds leader-outside-isr lost       anomalies that the checker must find, among others"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from checker.formats.anomalies import KINDS
from harness.explore.snapshot import restore, snapshot
from harness.explore.timers import expire
from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.core.api import Tick
from node.core.batch import Produced
from node.core.bugs import KNOWN_BUGS
from node.core.producers import Producers
from node.formats.messages import (
    AdminRequest,
    AdminResponse,
    AnyMessage,
    CreateTopic,
    ElectLeader,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
    ProduceResponse,
    ReassignReplicas,
    ReportLeader,
    SetMinIsr,
)
from node.formats.trace import DAMAGED, METADATA_PARTITION, REPORTED, STOPPED, WITNESSED
from node.formats.wire import split_fetch_body
from tests.support.checker.story import STORM_MS, P, against
from tests.support.cluster_story import RETRIES, story_of
from tests.support.disk_damage import flip, spoil, text_of
from tests.support.log_notation import records
from tests.support.stage_replica import event_text, message_text
from tests.support.world import World

Rule = Callable[[str, str, AnyMessage], bool]


class ClusterStage:
    """Three brokers and a voter, or as many as are wanted, with a bug on or off."""

    def __init__(
        self,
        bug: str = "",
        *,
        on: int = 1,
        brokers: int = 3,
        voters: int = 1,
        rf: int = 3,
        min_isr: int = 2,
        flush_ms: int = 0,
        unclean: int = 0,
        protocol: str = "",
        seed: int = 7,
        retention_records: int = 0,
        settle_ms: int = 100,
    ) -> None:
        known = next((each for each in KNOWN_BUGS if each.code == bug), None)
        self.world = World(
            seed,
            brokers=brokers,
            voters=voters,
            check_invariants=not bug,
            protocol=protocol or (known.protocol if known else "kafka"),
            flush_interval_ms=flush_ms,
            unclean_election=bool(unclean),
            retention_records=retention_records,
            bugs=(known.name,) if known and on else (),
        )
        self.lines: list[str] = []
        self.promise = {
            "flush": "async" if flush_ms else "sync",
            "unclean_election": bool(unclean),
            "retention": retention_records > 0,
            "retention_records": retention_records,
        }
        self._traced = self._heard = 0
        self._state: dict[str, Any] = {}
        self.sent: list[tuple[str, int]] = []
        self.produced: dict[str, Produced] = {}
        self.retries: list[tuple[str, int]] = []
        self.reads: list[tuple[int, int, list[tuple[int, str]], int]] = []
        self._held: list[Rule] = []
        self._dropped: list[Rule] = []
        self._obey_rules()
        self.world.run_for(500)
        self.world.create_topic(rf=rf, min_isr=min_isr)
        self.world.mail.clear()
        self.wait(settle_ms)
        self.write("a")
        self.wait(300)
        assert self._leader() == "n1"
        self.lines.clear()

    # -- clients -----------------------------------------------------------------------------------

    def write(self, *texts: str, to: str = "", acks: int = -1, seq: int = -1) -> None:
        """Send one batch of one record each to the leader, 20 ms after one another. With `seq` they
        are those of an idempotent producer, from that sequence on."""
        for text in texts:
            self.sent.append((text, acks))
            if seq >= 0:
                self.produced[text] = Produced(7, 0, seq)
                seq += 1
            self._send(len(self.sent), text, to)
        self.wait(20)

    def answers(self) -> list[str]:
        """Return the answers to clients since the last command, acknowledgements apart."""
        fresh, self._heard = self.world.mail[self._heard :], len(self.world.mail)
        lines = []
        for source, message, _ in fresh:
            if isinstance(message, ProduceResponse) and message.error:
                text = self.sent[message.corr - 1][0] if message.corr <= len(self.sent) else "it"
                doubt = ", in doubt" if message.appended else ""
                lines.append(f"{source} refuses {text}: {message.error.value}{doubt}")
        return lines

    def again(self, text: str, *, to: str = "") -> None:
        """Send that batch again from the idempotent producer, as the same operation."""
        self.retries.append((text, self._now_ms))
        self._send(RETRIES + len(self.retries), text, to)
        self.wait(20)

    def _send(self, corr: int, text: str, to: str) -> None:
        acks = dict(self.sent)[text]
        produced = self.produced.get(text)
        self.world.produce(to or self._leader(), P, corr, text.encode(), acks, produced)

    def read(self) -> None:
        """Read everything that the leader gives to a consumer."""
        leader = self._leader()
        start = self.world.nodes[leader].replicas[P].log.start
        self.world.ask(leader, FetchRequest(partition=P, offset=start, corr=-1))
        self.wait(5)
        source, message, body = next(
            m for m in reversed(self.world.mail) if isinstance(m[1], FetchResponse)
        )
        assert (source, message.error) == (leader, Error.NONE)  # type: ignore[union-attr]
        _, hw, data = split_fetch_body(body)
        texts = [(one.base_offset, one.payload.decode()) for one in batches.split(data)]
        self.reads.append((start, self._now_ms, texts, hw))
        self._note("records: " + " ".join(text for _, text in texts))

    # -- brokers -----------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        self.world.run_for(ms)
        self._note_trace()

    def kill(self, *names: str, wait: int = 2000) -> None:
        """Kill all at once; after two seconds the controller has noticed."""
        for name in names:
            self.world.kill(name)
        self.wait(wait)

    def start(self, name: str, *, wait: int = 500) -> None:
        self.world.start(name)
        self.wait(wait)

    def stop(self, name: str) -> None:
        """Ask a broker to shut down; it transfers what it leads at once."""
        self.world.stop(name)
        self.wait(20)

    def flush(self) -> None:
        """Every disk syncs what it was given (flush=async)."""
        for disk in self.world.disks.values():
            disk.flush()

    def power_cut(self, name: str, *, keep: int = 0, wait: int = 2000) -> None:
        """Kill a broker, and keep so many percent of the writes that were not flushed."""
        before = len(self.world.payloads(name, P))
        self.world.power_cut(name, keep / 100)
        lost = before - len(self.world.payloads(name, P))
        self._note(f"{name} loses {lost} of its records")
        self.wait(wait)

    def cut(self, *links: str) -> None:
        """No messages on these links: `n1-v1` both ways, `v1>n1` one way."""
        for link in links:
            a, b = link.replace(">", "-").split("-")
            self.world.cut |= {(a, b)} if ">" in link else {(a, b), (b, a)}

    def connect(self) -> None:
        """All links work again."""
        self.world.cut.clear()

    def isolate(self, name: str, *, wait: int = 2000) -> None:
        """Cut a broker from all others until the controller has noticed; clients reach it."""
        self.world.isolate(name)
        self.wait(wait)

    def delay(self, name: str) -> None:
        """Cut a follower from its leader while `b` is written, until it has left the ISR."""
        self.cut(f"{self._leader()}-{name}")
        self.write("b", acks=1)
        self.wait(2500)

    def reassign(self, *replicas: str) -> None:
        """Move the partition to these brokers, in this order; the first one is preferred."""
        self._command(ReassignReplicas(partition=P, replicas=replicas))

    def elect_preferred(self) -> None:
        self._command(ElectLeader(partition=P))

    def elect_unclean(self) -> None:
        self._command(ElectLeader(partition=P, unclean=True))

    def min_isr(self, number: int, to: str = "") -> None:
        """Change min.insync.replicas, asking all voters or one."""
        self._command(SetMinIsr(topic="log", min_isr=number), to)

    def create(self, topic: str) -> None:
        """Make one more topic with replicas on three brokers."""
        self._command(CreateTopic(topic=topic, partitions=1, replication_factor=3, min_isr=2))
        self.wait(2000)

    def _command(self, command: AdminRequest, to: str = "") -> None:
        for voter in [to] if to else self.world.voter_names:
            self.world.ask(voter, command)
        self.wait(20)
        for source, answer, _ in self.world.mail[self._heard :]:
            if isinstance(answer, AdminResponse) and (answer.error or to):
                said = f"refuses: {answer.error.value} {answer.detail}" if answer.error else "obeys"
                self._note(f"{source} {said}".rstrip())

    def pause(self, *names: str) -> None:
        for name in names:
            self.world.pause(name)

    def resume(self, *names: str, wait: int = 20) -> None:
        for name in names:
            self.world.resume(name)
        self.wait(wait)

    def logs(self) -> list[str]:
        """Return the log of the partition on each broker's disk."""
        return [f"{name}: {self._texts(name)} ({self._role(name)})" for name in self._brokers]

    @property
    def _brokers(self) -> tuple[str, ...]:
        return self.world.broker_names

    def _texts(self, name: str) -> str:
        texts = [text_of(data) for _, (_, data) in sorted(self.world.log(name, P).items())]
        return " ".join(text for text in texts if text.isalpha()) or "-"

    def _role(self, name: str) -> str:
        if name not in self.world.nodes:
            return "down"
        r = self.world.nodes[name].replicas.get(P)
        if r is None:
            return "no replica"
        isr = f", ISR {' '.join(r.isr)}" if r.role == "leader" else ""
        return f"{r.role}, LEO {r.leo}, HW {r.hw}{isr}"

    def forgive(self) -> None:
        """Allow the loss of committed records from now on."""
        self.world.invariants.committed_stays = False

    def expire(self, node: str, *waits: str) -> list[str]:
        """Return the effects of a copy of the node when one of these waits ends at once."""
        lines = []
        for wait in waits:
            core = self.world.nodes[node]
            copy = restore(snapshot(core), core.ctx.storage, core.ctx.jitter)
            expire(copy, wait)
            effects = copy.step(core.ctx.now_us, Tick())
            said = [f"-> {m.to} {message_text(m.message, m.body)}" for m in effects.messages]
            did = [event_text(event) for event in effects.trace]
            lines += [f"{wait}: {line}" for line in (*said, *did)]
        return lines

    # -- damage ------------------------------------------------------------------------------------

    def flip(self, name: str, text: str, *, place: str = "payload") -> None:
        """Change one bit of the batch of a record on a disk, or of its hash."""
        kept = self.world.log(name, P).items()
        (base,) = (base for base, (_, data) in kept if batches.view(data).payload == text.encode())
        flip(self.world.disks[name], base, place)

    def flip_metadata(self, name: str, nth: int) -> None:
        """Change one bit of a batch of the metadata."""
        base = sorted(self.world.log(name, METADATA_PARTITION))[nth]
        flip(self.world.disks[name], base, "payload", METADATA_PARTITION)

    def metadata(self, name: str, other: str) -> str:
        """Return whether two nodes have the same metadata."""
        one, two = (self.world.log(each, METADATA_PARTITION) for each in (name, other))
        return "equal" if one.keys() == two.keys() else "different"

    def last_known_elr(self) -> str:
        """Return the replicas that could lead last."""
        image = self.world.nodes[self._controller].ctx.image
        return " ".join(image.partitions[P].last_known_elr)

    def spoil(self, name: str, *keys: str) -> None:
        """Damage small values."""
        for key in keys:
            spoil(self.world.disks[name], key)

    def read_from_disk(self, name: str) -> str:
        """Read from the beginning, of which the broker has nothing in its memory, as a consumer."""
        if P in self.world.nodes[name].replicas:
            self.world.nodes[name].replicas[P].log._tail.clear()
        self.world.mail.clear()
        self._heard = 0
        self.world.ask(name, FetchRequest(partition=P, offset=0, corr=-1))
        self.wait(100)
        answers = [m for m in self.world.mail if isinstance(m[1], FetchResponse)]
        data = b"".join(split_fetch_body(body)[2] for _, _, body in answers)
        errors = {message.error.value for _, message, _ in answers}  # type: ignore[union-attr]
        return f"{name} gives {len(data)} bytes {' '.join(errors)}".strip()

    # -- Liftbridge --------------------------------------------------------------------------------

    def listen(self) -> None:
        """From now on the output has each message about the partition."""
        self.world.heard = self._hear

    def _hear(self, source: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        if getattr(message, "partition", "") != P or "c1" in (source, to):
            return
        match message:
            case FetchRequest():
                self._note(f"{source} -> {to}: fetch from {message.offset}")
            case FetchResponse():
                came = records(body)
                self._note(f"{source} -> {to}: {message.error.value or came or '16 bytes'}")
            case EpochEndResponse():
                self._note(f"{source} -> {to}: {message.error.value or message.end_offset}")
            case _:
                self._note(f"{source} -> {to}: {_kind(message)}")

    def report(self, replica: str, **other: Any) -> None:
        """Send a report against the leader, with other fields as wanted."""
        state = self.world.nodes[self._controller].ctx.image.partitions[P]
        fields = {
            "partition": P,
            "replica": replica,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.partition_epoch,
        }
        for voter in self.world.voter_names:
            self.world.ask(voter, ReportLeader(**(fields | other)))
        self.wait(5)

    @property
    def _controller(self) -> str:
        return next(n for n, node in self.world.nodes.items() if node.controller)

    def kill_controller(self, *, wait: int = 2000) -> None:
        self.kill(self._controller, wait=wait)

    def isolate_controller(self, way: str = "both ways", wait: int = 0) -> str:
        """Cut the controller from all others, or only what it sends (`out`) or receives (`in`)."""
        name = self._controller
        self.world.isolate(name)
        kept = {"in": 0, "out": 1}.get(way)
        if kept is not None:
            self.world.cut = {link for link in self.world.cut if link[kept] != name}
        self.wait(wait)
        return name

    def group(self) -> str:
        """Return which voters lead, and the terms of all."""
        voters = {name: node.quorum.r for name, node in self.world.nodes.items()}
        leads = [name for name, r in voters.items() if r.role == "leader" and name[0] == "v"]
        terms = sorted({r.leader_epoch for r in voters.values()})
        return f"{' '.join(leads) or 'nobody'} leads, terms {' '.join(map(str, terms))}"

    def know(self) -> list[str]:
        """Return the sequences of idempotent producers that each replica knows of, and that its log
        says the same."""
        lines = []
        for name in sorted(self.world.nodes.keys() & set(self._brokers)):
            r, said = self.world.nodes[name].replicas[P], Producers()
            said.rebuild(r.log.produced())
            assert r.producers._last == said._last, name
            last = {n: [w.sequence for w in known] for n, known in sorted(said._last.items())}
            lines.append(f"{name}: {last}")
        return lines

    def vote(self, of: str = P) -> str:
        """Return which replicas of a quorum are voters."""
        known = {n: node.quorums[of] for n, node in self.world.nodes.items() if of in node.quorums}
        return " ".join(sorted(name for name, quorum in known.items() if quorum.is_voter))

    def empty(self, name: str) -> None:
        """Give a dead node a disk with nothing on it."""
        self.world.sims[name].disk = SimDisk()

    def lower(self, name: str, hw: int) -> None:
        """Let a broker learn that less is committed than it knew."""
        broker = self.world.nodes[name]
        broker.replicas[P].set_hw(broker.ctx, hw)

    def put(self, name: str, key: str, value: str) -> None:
        """Put bytes in hexadecimal in the place of a small value on a disk."""
        self.world.disks[name]._synced.values[key] = bytes.fromhex(value)

    def start_in_vain(self, name: str) -> str:
        """Start a node that must end at once; return why it does."""
        try:
            self.world.start(name)
        except AssertionError as error:
            return str(error).splitlines()[-1].strip()
        return "it starts"

    def raise_term(self, voter: str, term: int) -> None:
        """Let a voter have campaigned alone up to a term, and start it again."""
        quorum = self.world.nodes[voter].quorum
        quorum.r.leader_epoch = term
        quorum._save_vote(self.world.nodes[voter].ctx, voter)
        self.world.disks[voter].commit()
        self.kill(voter, wait=0)
        self.start(voter, wait=5000)

    # -- messages ----------------------------------------------------------------------------------

    def hold(self, *rule: str, **fields: Any) -> None:
        """Hold such messages from now on: see `_rule`."""
        self._held.append(_rule(*rule, **fields))

    def hold_no_more(self) -> None:
        """Let new messages pass; held ones stay held."""
        self._held.clear()

    def drop(self, *rule: str, **fields: Any) -> None:
        """Drop such messages from now on: see `_rule`."""
        self._dropped.append(_rule(*rule, **fields))

    def release(self, *, first: int = 0, wait: int = 100) -> None:
        """Deliver what was held, and hold nothing any longer. With `first` only so many of the
        oldest are delivered; the rest waits for another `release`."""
        self._held.clear()
        held = self.world.held
        now, later = (held[:first], held[first:]) if first else (held, [])
        kinds = " ".join(sorted({_kind(m[2]) for m in now}))
        self._note(f"delivered: {len(now)} of {len(held)}, {kinds}".removesuffix(", "))
        self.world.held = now
        self.world.release()
        self.world.held = later
        self.wait(wait)

    def drop_held(self) -> None:
        self.world.held.clear()

    def drop_nothing(self, *, wait: int = 500) -> None:
        """Nothing is dropped any longer."""
        self._dropped.clear()
        self.wait(wait)

    def heal(self) -> None:
        """Undo everything, lose what is held, start every broker and wait six seconds. Then one
        more write, and a consumer reads everything."""
        self._held.clear()
        self._dropped.clear()
        self.world.held.clear()
        self.world.heal()
        self._obey_rules()
        self.wait(6000)
        self.write("z")
        self.read()

    # -- what the brokers did ----------------------------------------------------------------------

    def observe(self) -> list[str]:
        """Return the lines about the command."""
        lines, self.lines = self.lines, []
        return [*lines, *self.answers()]

    def _obey_rules(self) -> None:
        self.world.hold = lambda *m: any(rule(*m) for rule in self._held)
        self.world.drop = lambda *m: any(rule(*m) for rule in self._dropped)

    def _leader(self) -> str:
        leader = self.world.leader(P)
        assert leader
        return leader

    @property
    def _now_ms(self) -> int:
        """The time on the clock of the story."""
        return self.world.now_us // 1000 - STORM_MS

    def _note(self, line: str) -> None:
        self.lines.append(line)

    def _note_trace(self) -> None:
        fresh, self._traced = self.world.trace[self._traced :], len(self.world.trace)
        for e in fresh:
            if e["event"] == STOPPED:
                self._note(f"{e['node']} has stopped")
            if e["event"] == DAMAGED:
                where = e["key"] or f"{e['partition']} @{e['offset']}"
                self._note(f"{e['node']} has damage, {where}: {e['what']}")
            if e.get("partition") != P:
                continue
            if e["event"] == "partition":
                self._note_change(e)
            elif e["event"] == "truncated" and e["reason"] == "damaged":
                self._note(f"{e['node']} removes what is damaged from {e['leo']}")
            elif e["event"] == "truncated" and e["leo"] < e["from_leo"]:
                self._note(f"{e['node']} cuts {e['from_leo']} -> {e['leo']}")
            elif e["event"] == REPORTED:
                self._note(f"{e['node']} reports {e['leader']}")
            elif e["event"] == WITNESSED:
                self._note(f"witnesses: {' '.join(e['witnesses'])} of {' '.join(e['isr'])}")
            elif e["event"] == "deleted":
                self._note(f"{e['node']} deletes below {e['start']} ({e['reason']})")
            elif e["event"] == "ack" and e["client"] == "c1":
                record = self._record(e["node"], e["base_offset"])
                how = "" if e["acks"] == -1 else ", not as committed"
                self._note(f"{record} is acknowledged at {e['base_offset']}{how}")

    def _record(self, node: str, offset: int) -> str:
        kept = self.world.log(node, P).get(offset)
        return text_of(kept[1]) if kept else "a deleted record"

    def _note_change(self, e: dict[str, Any]) -> None:
        now = {f: e[f] for f in ("leader", "isr", "elr")}
        if now == self._state:
            return
        leads = f"{e['leader']} leads epoch {e['leader_epoch']}" if e["leader"] else "no leader"
        elr = f", ELR {' '.join(e['elr'])}" if e["elr"] else ""
        unclean = ", unclean" if e["unclean"] else ""
        self._note(f"{leads}, ISR {' '.join(e['isr']) or '-'}{elr}{unclean}")
        self._state = now

    # -- the verdict -------------------------------------------------------------------------------

    def judge(self, folder: Path) -> dict[str, str]:
        """Return what the checker finds in this run: anomaly -> property."""
        found = against(story_of(self).check(folder))
        return {name: KINDS[name].property for name in found}


def _kind(message: AnyMessage) -> str:
    return str(message.__struct_config__.tag)


def _rule(name: str, link: str = ">", **fields: Any) -> Rule:
    """Messages of a kind, `any`, or one of `SPECIAL`, on a link (`n1>n3`, `>n3`, `n1>`), with
    these fields. Of messages about a partition only those about the data partition."""
    source, _, to = link.partition(">")
    special = SPECIAL.get(name)

    def matches(a: str, b: str, message: AnyMessage) -> bool:
        if source not in ("", a) or to not in ("", b):
            return False
        if name == "any":
            return True
        if special is not None:
            return isinstance(message, FetchResponse) and special(message)
        if getattr(message, "partition", P) != P or _kind(message) != name:
            return False
        return all(getattr(message, f) == value for f, value in fields.items())

    return matches


SPECIAL: Final[dict[str, Callable[[FetchResponse], bool]]] = {
    "diverging": lambda m: m.diverging is not None,
    "not-diverging": lambda m: m.partition == P and m.diverging is None,
    "metadata": lambda m: m.partition == METADATA_PARTITION,
    "metadata-hw": lambda m: m.partition == METADATA_PARTITION and m.offset == m.log_end,
}
"""Fetch responses by what they carry; `metadata-hw` brings no new metadata, only its HW."""
