"""Slow definitions of liveness, exercise and leadership, word by word after docs/checks.md.

The facts are those of a `Story`; times are microseconds."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from typing import Any

from harness.formats.seal import PROBES
from tests.support.checker.done import Done, joined
from tests.support.checker.evidence_definitions import traces_missing
from tests.support.checker.story import P, Story

CATCH_UP_US = 1_000_000
PASSING = ("kill", "stop", "pause", "disk-full", "isolate", "cut", "bridge", "ring")
AT_ONCE = ("restart", "resume")


class LifeDefinitions:
    """Liveness and exercise of one run."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.ops = joined(story.history)
        self.workload = story.schedule.get("workload", {})
        self.limit_us = story.run["recovery_limit_ms"] * 1000

    def phase(self, name: str) -> int:
        """Return when a phase began, 0 if it was not reached."""
        return int(self.story.run["phases"].get(f"{name}_us", 0))

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for partition in self.story.partitions:
            found.update(self.progress(partition))
            found["unavailable"] += self.silent_majority(partition)
            stuck = self.stuck(partition)
            found["final-reads-stuck"] += stuck and self.asked()
            found["liveness unknown"] += stuck and not self.asked()
            found["not-converged"] += self.apart(partition)
        found.update(self.members())
        for end in self.story.exits:
            stopped = end.get("by") == "stop" or end["code"] == -9
            found["unclean-stop" if stopped else "unexplained-exit"] += not end["expected"]
        scripted = self.scripted()
        if not scripted:
            found["few-acks"] = int(len(self.progressed()) < 10)
            found["clients-stopped"] = self.silent()
        faults = self.story.schedule.get("faults", ())
        missed = sum(not self.struck(index, scripted) for index in range(len(faults)))
        if not self.story.schedule.get("drawn"):
            found["fault-missed"] = missed
        elif len(faults) - missed < len(faults) / 2:
            found["few-faults"] = missed
        found["operation-missed"] = self.operations()
        return +found

    # -- liveness

    def sent(self, partition: str) -> list[Done]:
        return [op for op in self.ops if op.sent(partition)]

    def progress(self, partition: str) -> Counter[str]:
        heal_us = self.phase("heal")
        after = [op for op in self.sent(partition) if op.t0 > heal_us]
        if not heal_us or not after or self.story.run["promise"]["acks"] == 0:
            return Counter()
        acked = [
            op.t1
            for op in self.sent(partition)
            if op.outcome == "ok" and op.t1 is not None and op.t1 > heal_us
        ]
        if any(t <= heal_us + self.limit_us for t in acked):
            return Counter()
        watched = [op.t0 for op in after] + [self.phase("stop_writing"), self.phase("end")]
        if not acked and all(t < heal_us + self.limit_us for t in watched):
            return Counter({"liveness unknown": 1})
        return Counter({"no-progress": len(after)})

    def silent_majority(self, partition: str) -> int:
        """Count the sends that a partition owed an acknowledgement while a majority was up."""
        story, heal_us = self.story, self.phase("heal")
        promise, kinds = story.run["promise"], [f["what"] for f in story.schedule["faults"]]
        lines = [{"done_us": line["t_us"], "nodes": (), **line} for line in story.faults]
        told = {line["fault"] for line in lines} == {-1, *range(len(kinds))}
        owes = promise["acks"] != 0 and promise.get("silence_deposes", True)
        if not told or not owes or not self.phase("storm") or traces_missing(story, partition):
            return 0
        injected = [line for line in lines if line["action"] == "inject" and line["fault"] >= 0]
        known = [line for line in injected if kinds[line["fault"]] in (*PASSING, *AT_ONCE)]
        others = [line["t_us"] for line in injected if line not in known]
        end_us = min([heal_us, *others, *(e["t_us"] for e in story.exits if not e["expected"])])
        numbers = {line["fault"] for line in known}
        edges = {t for x in lines if x["fault"] in numbers for t in (x["t_us"], x["done_us"])}
        edges = {self.phase("storm"), end_us, *edges}
        acked = [op.t1 for op in self.sent(partition) if op.outcome == "ok" and op.t1 is not None]
        owed: set[int] = set()
        for begin in {*edges, *acked}:
            end = min((t for t in (*edges, *acked) if t > begin), default=end_us)
            since = max((t for t in edges if t <= begin), default=math.inf)
            if end > end_us or end - begin <= self.limit_us or not any(t <= begin for t in acked):
                continue
            if self.untouched(partition, known, since, min(t for t in edges if t > begin)):
                asked = [op for op in self.sent(partition) if begin < op.t0 <= end]
                half = begin + self.limit_us / 2
                early = any(op.t0 <= half for op in asked)
                if early and any(half < op.t0 <= begin + self.limit_us for op in asked):
                    owed |= {op.number for op in asked}
        return len(owed)

    def untouched(
        self, partition: str, injected: list[dict[str, Any]], since: float, until: int
    ) -> bool:
        """Return whether those that a partition needs are up and connected all the time."""
        run, out = self.story.run, set()
        for line in injected:
            kind = self.story.schedule["faults"][line["fault"]]["what"]
            whole = kind != "isolate" or any(b[0] == "c" for _, b in line.get("links", ()))
            for node in line.get("nodes", ()):
                ends = [
                    heal.get("done_us", heal["t_us"])
                    for heal in self.story.faults
                    if (heal["fault"], heal["action"]) == (line["fault"], "heal")
                    and node in heal["nodes"]
                    and "detail" not in heal
                ]
                if kind in PASSING and line["t_us"] < until and min(ends, default=until) > since:
                    if kind in ("cut", "bridge", "ring") or not whole:
                        return False
                    out.add(node)
        replicas = set(run["partitions"][partition])
        left, least = replicas - out, self.story.schedule.get("cluster", {}).get("min_isr", 2)
        if len(left) < max(least, len(replicas) // 2 + 1):
            return False
        if run["voters"] and len(set(run["voters"]) - out) <= len(run["voters"]) // 2:
            return False
        changes: dict[int, dict[str, Any]] = {}
        for event in sorted(
            Leadership(self.story, partition).events["partition"], key=lambda e: e["t_us"]
        ):
            changes.setdefault(event["partition_epoch"], event)
        before = [n for n, e in changes.items() if e["t_us"] <= since]
        inside = [n for n, e in changes.items() if since < e["t_us"] <= until]
        by_votes = not any(change["isr"] for change in changes.values())
        return bool(before) and all(
            (by_votes or left & {*changes[n]["isr"], *changes[n]["elr"]})
            and {*changes[n]["replicas"]} == replicas
            and not changes[n]["removing"]
            for n in (max(before), *inside)
        )

    def stuck(self, partition: str) -> bool:
        final_us, end_us = self.phase("final"), self.phase("end")
        answered = any(
            op.final and op.outcome == "ok" and r.partition == partition
            for op in self.ops
            for r in op.reads
            if r.records or r.hw >= 0 or r.at_end
        )
        acked = any(op.outcome == "ok" for op in self.sent(partition))
        return 0 < final_us < end_us and acked and not answered

    def asked(self) -> bool:
        """Return whether a final read was invoked."""
        return any(op.final and op.f in ("poll", "txn") for op in self.ops)

    def apart(self, partition: str) -> int:
        """Count the replicas that end before the longest, once all must be equal."""
        heal_us, in_sync_us = self.phase("heal"), self.phase("in_sync")
        members = self.story.run["partitions"][partition]
        ends = [
            head.leo
            for node, lines in self.story.logs.items()
            for head in lines
            if head.partition == partition and head.count == 0
            if node not in self.story.unfinished and node in members
        ]
        due_us = heal_us + self.limit_us
        if in_sync_us and "trace" in self.story.run["capabilities"]:
            due_us = min(due_us, in_sync_us)
        due_us = max(due_us, self.phase("stop_writing") + CATCH_UP_US)
        due_us = min(due_us, self.phase("alike") or due_us)
        settled = self.story.run["state"] == "finished" and heal_us > 0
        if not settled or self.phase("end") < due_us or len(ends) < len(members):
            return 0
        return sum(end < max(ends) for end in ends)

    def members(self) -> Counter[str]:
        """Count the members that list others than the members, and a final heal that is stuck."""
        record = self.story.run.get("membership")
        if record is None:
            return Counter()
        names, said = record["expected"], record["said"]
        wrong = 0
        for node in record["final"]:
            owners = [
                [n for n in record["final"] if each in names[n]] for each in said.get(node, ())
            ]
            whole = {n for own in owners for n in own} == {*record["final"]}
            wrong += node in said and not (whole and all(owners))
        stuck = bool(record["stuck"]) and self.story.run["state"] == "finished"
        return Counter({"membership-differs": wrong, "membership-stuck": int(stuck)})

    # -- exercise

    def progressed(self) -> list[Done]:
        """Return the operations that show progress: acknowledged sends, or with acks=0 the polls
        before the final reads that returned records."""
        done = [op for op in self.ops if op.outcome == "ok"]
        if self.story.run["promise"]["acks"] != 0:
            return [op for op in done if op.sends]
        final_us = self.phase("final") or math.inf
        early = [op for op in done if op.t0 < final_us]
        return [op for op in early if any(map(op.polled, self.story.partitions))]

    def scripted(self) -> bool:
        drawn = any(self.workload.get(kind) != 0 for kind in ("clients", "consumers"))
        return bool(self.workload.get("operations")) and not drawn

    def silent(self) -> bool:
        """Return whether nothing was invoked for more than a third of the storm."""
        storm_us, heal_us = self.phase("storm"), self.phase("heal")
        if not 0 < storm_us < heal_us:
            return False
        inside = [op.t0 for op in self.ops if storm_us <= op.t0 <= heal_us]
        third = (heal_us - storm_us) / 3
        return any(
            to - begin > third and not any(begin < t < to for t in inside)
            for begin in [storm_us, *inside]
            for to in [*inside, heal_us]
        )

    def struck(self, index: int, scripted: bool) -> bool:
        lines = [line for line in self.story.faults if line["fault"] == index]
        hit = [line for line in lines if line["action"] == "inject"]
        injected = [line["t_us"] for line in hit]
        effects = [line["stopped"] for line in lines if line["action"] == "effect"]
        if not injected or (effects and not any(effects)):
            return False
        acked = [op.t1 or 0 for op in self.progressed()]
        around = any(t <= injected[0] for t in acked) and any(t > injected[0] for t in acked)
        nodes = hit[0].get("nodes", ())
        joins = hit[0]["what"] in ("join", "return")
        hit_one = joins or not nodes or any(self.served(node, injected[0]) for node in nodes)
        return scripted or (around and hit_one)

    def served(self, node: str, at: int) -> bool:
        """Return whether a node served at a moment, or nothing tells."""
        events = self.story.traces.get(node, ())
        roles = [e for e in events if e.get("role") in ("leader", "follower")]
        turns = [(e["t_us"], True) for e in roles if e["event"] == "role"]
        turns += [(e["t_us"], False) for e in events if e["event"] == "started" and turns]
        answers = [json.loads(line) for line in self.story.extra.get(PROBES, b"").splitlines()]
        tells = any(answer.get("isr") for answer in answers)
        for nth, answer in enumerate(answers) if tells else ():
            last: dict[str, set[str]] = {}
            for each in answers[: nth + 1]:
                about = each.get("partition", "")
                if "isr" in each:
                    last[about] = set(each["isr"])
                elif each.get("role") == "leader":
                    last[about] = last.get(about, set()) | {each["node"]}
            named = any(node in nodes for nodes in last.values())
            # What nobody ever named is not known.
            turns += [(answer["t_us"], named)] if named or turns else []
        so_far = [serves for t, serves in sorted(turns) if t <= at]
        return not turns or so_far[-1:] == [True]

    def operations(self) -> int:
        outcomes = {op.step: op.outcome for op in self.ops}
        return sum(
            step not in outcomes or (each["must"] == "ok" and outcomes[step] != "ok")
            for step, each in enumerate(self.workload.get("operations", ()))
        )


class Leadership:
    """The leaders over time, by traces: of a partition, and of the cluster."""

    def __init__(self, story: Story, partition: str = P) -> None:
        self.events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.whole = not traces_missing(story, partition)
        for node in sorted(story.traces):
            fenced: set[str] = set()
            for event in sorted(story.traces[node], key=lambda e: e["t_us"]):
                if event["event"] == "controller":
                    fenced.clear()
                if event["event"] == "broker":
                    (fenced.add if event["state"] == "fenced" else fenced.discard)(event["broker"])
                if event.get("partition", partition) == partition:
                    # What a trace does not say is empty.
                    known = {"last_known_elr": (), "removing": (), **event, "fenced": {*fenced}}
                    self.events[event["event"]].append(known)
                    self.lines[node].append(known)

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        active = [e for e in self.events["controller"] if e["state"] == "active"]
        found["two-controllers"] = self.doubled({(e["term"], e["node"]) for e in active})
        changes: dict[int, dict[str, Any]] = {}
        for event in sorted(self.events["partition"], key=lambda e: e["t_us"]):
            # Of several voters that tell of one change the first counts.
            changes.setdefault(event["partition_epoch"], event)
        for number, now in changes.items():
            isr = set(now["isr"])
            found["isr-outside-replicas"] += bool(now["replicas"] and isr - {*now["replicas"]})
            found["fenced-in-isr"] += len(isr) > 1 and bool(isr & now["fenced"])
            was = changes.get(number - 1)
            if was is not None and self.elected(was, now):
                found["leader-outside-isr"] += now["leader"] not in self.may_lead(was, now)
        if self.whole:
            found["incomplete-isr"] = self.incomplete([changes[n] for n in sorted(changes)])
        return +found

    def incomplete(self, changes: list[dict[str, Any]]) -> int:
        """Count the members of ISR and ELR that lack what a HW covers, now or as they enter."""
        moves = [e for e in self.events["hw"] if e["role"] == "leader"]
        found, since, before = 0, -1, dict[str, Any]()
        for now, after in zip(changes, [*changes[1:], {"t_us": math.inf}], strict=False):
            epoch, others = now["leader_epoch"], {*now["isr"], *now["elr"]} - {now["leader"]}
            for e in moves:
                if now["t_us"] < e["t_us"] < after["t_us"] and e["leader_epoch"] == epoch:
                    found += sum(self.reached(m, epoch, e["t_us"]) < e["hw"] for m in others)
            was, before = before, now
            members = {*was.get("isr", ()), *was.get("elr", ())}
            if was and now["leader"] and now["leader"] not in members:
                since = epoch
            if was and was["partition_epoch"] + 1 == now["partition_epoch"]:
                earlier = [e for e in moves if e["t_us"] < now["t_us"]]
                hw = [e["hw"] for e in earlier if since <= e["leader_epoch"] <= epoch]
                for m in others - members:
                    ends = [self.reached(m, e, now["t_us"]) for e in (was["leader_epoch"], epoch)]
                    found += max(ends) < max(hw, default=0)
        return found

    def reached(self, node: str, epoch: int, t_us: int) -> float:
        """Return the highest log end that a broker stated in an epoch, else its last one before."""
        own: list[tuple[int, float]] = [(-2, 0)]
        for at, e in enumerate(self.lines[node]):
            if e["t_us"] <= t_us and e["event"] in ("role", "append"):
                role, after = e["event"] == "role", self.lines[node][at + 1 :]
                same = itertools.takewhile(lambda x: x["event"] != "role", after if role else ())
                cuts = [x["leo"] for x in same if x["event"] == "truncated"]
                ends = [leo for leo in (e["leo"], *cuts) if leo >= 0]
                own.append((e["leader_epoch"] if role else own[-1][0], min(ends, default=math.inf)))
        return max((end for of, end in own if of == epoch), default=own[-1][1])

    @staticmethod
    def doubled(claims: set[tuple[int, str]]) -> int:
        """Count the terms that two nodes claim, without unknown ones (-1)."""
        terms = Counter(term for term, _ in claims)
        return sum(times > 1 and term >= 0 for term, times in terms.items())

    @staticmethod
    def elected(was: dict[str, Any], now: dict[str, Any]) -> bool:
        newer = now["leader_epoch"] > was["leader_epoch"]
        return bool(now["leader"]) and now["leader"] != was["leader"] and newer

    @staticmethod
    def may_lead(was: dict[str, Any], now: dict[str, Any]) -> set[str]:
        found = {*was["isr"], *was["elr"]}
        if not found:
            found = {*was["last_known_elr"]}
        leaves = was["leader"] in was["removing"]
        remain = {*was["replicas"]} - {*was["removing"]}
        if leaves and not now["removing"] and {*now["replicas"]} == remain:
            found |= {*now["isr"]}
        return found
