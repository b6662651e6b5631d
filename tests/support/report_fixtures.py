"""Small run folders made by code, for the tests of the page: the files, without any cluster.

`storm` writes a believable 30 s storm (three brokers, four partitions, kills, a pause, cuts, one
fault that found no target); `broken=True` makes partition log-0 lose acknowledged writes when its
leader is isolated, and leaves the old leader with a diverged log. `many` writes a long history
quickly. Everything is drawn from a seed: the same call writes the same bytes.
"""

from __future__ import annotations

import heapq
import json
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemesis import faults as kinds
from nemesis.formats import schedule as s

BASE_US = 812_345_000_000
ZERO_US = BASE_US + 1_800_000
BROKERS: tuple[str, ...] = ("n1", "n2", "n3")
CHAIN = "0123456789abcdef"

Line = dict[str, Any]


def us(seconds: float) -> int:
    """Monotonic microseconds of a moment given in seconds since storm start."""
    return ZERO_US + round(seconds * 1e6)


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Write JSON lines, making the folder when needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for line in lines:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def write_json(path: Path, value: object) -> None:
    """Write one JSON file, making the folder when needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


FAULTS: tuple[s.Fault, ...] = (
    kinds.Kill(on="leader:log-0", at_ms=4200, for_ms=3000),
    kinds.Pause(on="follower:log-1", at_ms=9000, for_ms=2500),
    kinds.Isolate(on="leader:log-0", at_ms=13000, for_ms=4000),
    kinds.Delay(on="n1", to="n3", at_ms=15000, for_ms=5000, delay_ms=80, jitter_ms=20),
    kinds.Cut(on="n1", to="n3", at_ms=20500, for_ms=3000),
    kinds.Kill(on="lagging", at_ms=22000, for_ms=1000),
    kinds.Kill(on="minority", at_ms=25000),
    kinds.Loss(on="n2", to="n1", percent=20, at_ms=27000, for_ms=2000, kinds=("fetch",)),
)

# partition: (from second, leader, epoch, isr), as the controller committed it
LEADERS: dict[str, list[tuple[float, str, int, tuple[str, ...]]]] = {
    "log-0": [
        (-1.2, "n1", 0, BROKERS),
        (5.71, "n2", 1, ("n2", "n3")),
        (8.9, "n2", 1, BROKERS),
        (14.62, "n3", 2, ("n1", "n3")),
        (19.1, "n3", 2, BROKERS),
        (26.6, "n3", 2, ("n1", "n3")),
        (31.2, "n3", 2, BROKERS),
    ],
    "log-1": [
        (-1.2, "n2", 0, BROKERS),
        (5.74, "n2", 0, ("n2", "n3")),
        (8.8, "n2", 0, BROKERS),
        (10.2, "n2", 0, ("n1", "n2")),
        (12.3, "n2", 0, BROKERS),
        (14.62, "n1", 1, ("n1", "n3")),
        (19.2, "n1", 1, BROKERS),
        (26.6, "n1", 1, ("n1", "n3")),
        (31.3, "n1", 1, BROKERS),
    ],
    "log-2": [
        (-1.2, "n3", 0, BROKERS),
        (10.6, "n1", 1, ("n1", "n2")),
        (12.4, "n1", 1, BROKERS),
        (14.64, "n1", 1, ("n1", "n3")),
        (19.3, "n1", 1, BROKERS),
        (26.7, "n1", 1, ("n1", "n3")),
        (31.2, "n1", 1, BROKERS),
    ],
    "log-3": [
        (-1.2, "n1", 0, BROKERS),
        (5.72, "n3", 1, ("n2", "n3")),
        (8.9, "n3", 1, BROKERS),
        (10.7, "n2", 2, ("n1", "n2")),
        (12.5, "n2", 2, BROKERS),
        (14.7, "n1", 3, ("n1", "n3")),
        (19.4, "n1", 3, BROKERS),
        (26.7, "n1", 3, ("n1", "n3")),
        (31.4, "n1", 3, BROKERS),
    ],
}
DOWN = {"n1": [(4.213, 7.24)], "n2": [(25.009, 30.31)], "n3": []}
SILENT = {"n1": DOWN["n1"], "n2": [(13.004, 17.01), (25.009, 30.31)], "n3": [(9.006, 11.51)]}


@dataclass
class Storm:
    """The state of a made-up storm while its history is written."""

    rng: random.Random
    broken: bool
    next_offset: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEADERS, 0))
    batches: dict[str, list[tuple[int, int, int, int, int]]] = field(
        default_factory=lambda: {name: [] for name in LEADERS}
    )
    diverged: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    lost: list[Line] = field(default_factory=list)
    history: list[Line] = field(default_factory=list)
    op: int = 0
    value: int = 0

    def leader(self, partition: str, at: float) -> tuple[str, int] | None:
        """Who answers for a partition at a moment, None while nobody does."""
        name, epoch, isr = "", 0, BROKERS
        for start, node, number, members in LEADERS[partition]:
            if start <= at:
                name, epoch, isr = node, number, members
        del isr
        hole = any(a <= at < b for a, b in SILENT[name])
        return None if hole else (name, epoch)

    def send(self, at: float, client: str, process: int, partition: str) -> tuple[float, str]:
        """One send of five records; returns when and how it ended."""
        value, self.value = self.value, self.value + 5
        op, self.op = self.op, self.op + 1
        sends: Line = {"partition": partition, "value": value, "count": 5}
        head = {"op": op, "process": process, "client": client, "f": "send"}
        self.history.append({**head, "t_us": us(at), "type": "invoke", "sends": [sends]})
        leads = self.leader(partition, at)
        if leads is None:
            refused = self.rng.random() < 0.35
            end = at + (self.rng.uniform(0.002, 0.02) if refused else 3.0)
            outcome = "fail" if refused else "info"
            error = "not_leader" if refused else "timeout"
            tail = {"type": outcome, "sends": [sends], "error": error}
        else:
            slow = 4.0 if 15.0 <= at < 20.0 else 1.0
            end = at + self.rng.lognormvariate(-5.3, 0.55) * slow
            base = self.append(partition, value, leads[1], end, op)
            outcome = "ok"
            tail = {"type": "ok", "sends": [{**sends, "offset": base}]}
        self.history.append({**head, "t_us": us(end), **tail})
        return end, outcome

    def append(self, partition: str, value: int, epoch: int, at: float, op: int) -> int:
        """Give five records their offsets; in a broken storm log-0 forgets 15 at the isolation."""
        if self.broken and partition == "log-0" and at >= 14.6 and not self.diverged:
            self.next_offset[partition] -= 15
            low = self.next_offset[partition]
            self.diverged = [b for b in self.batches[partition] if b[0] >= low]
            self.batches[partition] = [b for b in self.batches[partition] if b[0] < low]
        base = self.next_offset[partition]
        self.next_offset[partition] = base + 5
        self.batches[partition].append((base, value, epoch, us(at), op))
        return base

    def poll(self, at: float, client: str, process: int, seen: dict[str, int]) -> float:
        """One read of one partition from where this consumer stands."""
        partition = self.rng.choice(list(LEADERS))
        op, self.op = self.op, self.op + 1
        head = {"op": op, "process": process, "client": client, "f": "poll"}
        start = seen.get(partition, 0)
        read: Line = {"partition": partition, "start": start}
        self.history.append({**head, "t_us": us(at), "type": "invoke", "reads": [read]})
        leads = self.leader(partition, at)
        if leads is None:
            self.history.append(
                {**head, "t_us": us(at + 3), "type": "info", "reads": [read], "error": "timeout"}
            )
            return at + 3
        runs = [[b[0], b[1], 5, b[2]] for b in self.batches[partition] if b[0] >= start][:40]
        seen[partition] = runs[-1][0] + 5 if runs else start
        end = at + self.rng.uniform(0.001, 0.09)
        full = {**read, "records": runs, "hw": self.next_offset[partition], "node": leads[0]}
        self.history.append({**head, "t_us": us(end), "type": "ok", "reads": [full]})
        return end

    def finals(self) -> None:
        """The final reads, from offset 0, by a fresh client."""
        for i, partition in enumerate(LEADERS):
            op, self.op = self.op, self.op + 1
            head = {"op": op, "process": 900, "client": "c13", "f": "poll", "final": True}
            self.history.append({**head, "t_us": us(31.9 + i / 10), "type": "invoke"})
            runs = [[b[0], b[1], 5, b[2]] for b in self.batches[partition]]
            read = {"partition": partition, "start": 0, "records": runs, "node": "n1"}
            line = {**head, "t_us": us(31.95 + i / 10), "type": "ok", "reads": [read]}
            self.history.append(line)


def storm(
    folder: Path, *, seed: int = 7, broken: bool = False, judged: bool = True, rate: float = 10.0
) -> Path:
    """Write a whole run folder and return it. `rate` is sends per second and producer."""
    made = Storm(random.Random(seed), broken)
    clients = [(f"c{i}", "producer" if i <= 8 else "consumer") for i in range(1, 13)]
    due = sorted((made.rng.random() / rate, name, kind) for name, kind in clients)
    process = {name: i for i, (name, _) in enumerate(clients)}
    seen: dict[str, dict[str, int]] = {name: {} for name, _ in clients}
    while due:
        at, name, kind = heapq.heappop(due)
        if at > 31.5:
            continue
        if kind == "producer":
            end, outcome = made.send(at, name, process[name], made.rng.choice(list(LEADERS)))
            process[name] += 100 if outcome == "info" else 0
            again = max(end, at + made.rng.uniform(0.5, 1.5) / rate)
        else:
            again = made.poll(at, name, process[name], seen[name]) + 0.05
        heapq.heappush(due, (again, name, kind))
    made.finals()
    _write_run(folder, made, dict(clients), seed)
    if judged:
        write_json(folder / "results.json", _results(folder, made))
    return folder


def _write_run(folder: Path, made: Storm, clients: dict[str, str], seed: int) -> None:
    plan = s.Schedule(
        name="drawn",
        faults=FAULTS,
        drawn=True,
        workload=s.Workload(seed=seed),
        cluster=s.Cluster(bugs=("election-outside-isr",) if made.broken else ()),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedule.json").write_bytes(plan.to_json())
    write_json(folder / "run.json", run_json(folder, plan, clients))
    write_lines(folder / "history.jsonl", sorted(made.history, key=lambda line: line["t_us"]))
    write_lines(folder / "faults.jsonl", _fault_lines())
    write_lines(folder / "exits.jsonl", _exit_lines())
    for node in BROKERS:
        write_lines(folder / "trace" / f"{node}.jsonl", _trace(made, node))
        write_lines(folder / "logs" / f"{node}.jsonl", _log(made, node))
    write_lines(folder / "trace" / "v1.jsonl", _voter())
    (folder / "output").mkdir(exist_ok=True)
    for node in BROKERS:
        (folder / "output" / f"{node}.txt").write_text(f"{node} listens\n")


def run_json(folder: Path, plan: s.Schedule, clients: dict[str, str]) -> Line:
    """The `run.json` of a finished storm."""
    run = f"{folder.parent.name}/{folder.name}"
    phases = {
        "start_us": BASE_US,
        "storm_us": ZERO_US,
        "heal_us": us(30.0),
        "recovered_us": us(31.4),
        "stop_writing_us": us(31.5),
        "final_us": us(31.8),
        "end_us": us(33.1),
    }
    return {
        "format": 2,
        "run": run,
        "name": folder.parent.name,
        "seed": plan.workload.seed,
        "schedule_digest": plan.digest(),
        "replay": f"floodmark run --schedule store/{run}",
        "command": ["floodmark", "run", "--seed", str(plan.workload.seed)],
        "protocol": "kafka",
        "bugs": list(plan.cluster.bugs),
        "world": "real",
        "capabilities": ["trace", "logs", "hw", "epochs"],
        "promise": {"acks": -1, "flush": "sync", "durable_acks": True},
        "partitions": {name: list(BROKERS) for name in LEADERS},
        "brokers": list(BROKERS),
        "voters": ["v1"],
        "clients": clients,
        "phases": phases,
        "epoch_us": 1_767_268_800_000_000,
        "monotonic_us": BASE_US,
        "state": "finished",
        "recovery_limit_ms": 7500,
        "versions": {"floodmark": "0.1.0", "python": "3.11.8"},
        "host": {"cpus": 2, "memory_gb": 8},
        "problems": [],
    }


def _fault_lines() -> list[Line]:
    done = [
        (0, "kill", "leader:log-0", 4.213, 7.204, ["n1"], [], None),
        (1, "pause", "follower:log-1", 9.006, 11.51, ["n3"], [], None),
        (2, "isolate", "leader:log-0", 13.004, 17.01, ["n2"], ["n1", "n3", "v1"], (412, 0)),
        (3, "delay", "n1", 15.003, 20.01, ["n1", "n3"], [], (0, 1873)),
        (4, "cut", "n1", 20.504, 23.51, ["n1", "n3"], [], (229, 0)),
        (6, "kill", "minority", 25.009, 30.31, ["n2"], [], None),
        (7, "loss", "n2", 27.002, 29.02, ["n2", "n1"], [], (0, 0)),
    ]
    lines: list[Line] = []
    for index, what, on, start, end, nodes, others, effect in done:
        links = [[nodes[0], x] for x in others] + [[x, nodes[0]] for x in others]
        if what in ("delay", "cut", "loss"):
            links = [[nodes[0], nodes[1]], [nodes[1], nodes[0]]]
        head = {"fault": index, "what": what, "on": on, "nodes": nodes, "links": links}
        lines.append({**head, "action": "inject", "t_us": us(start), "done_us": us(start + 0.002)})
        lines.append({**head, "action": "heal", "t_us": us(end), "done_us": us(end + 0.002)})
        if effect is not None:
            counts = {"dropped": effect[0], "delayed": effect[1]}
            lines.append({**head, "action": "effect", "t_us": us(end + 0.003), **counts})
    why = {"what": "kill", "on": "lagging", "detail": "no follower lagged"}
    lines.append({"fault": 5, "action": "skipped", "t_us": us(22.0), **why})
    lines.append({"fault": -1, "action": "heal", "what": "heal", "t_us": us(30.0)})
    return sorted(lines, key=lambda line: line["t_us"])


def _exit_lines() -> list[Line]:
    killed = {"code": -9, "by": "kill", "expected": True}
    lines = [
        {"node": node, "incarnation": i, "t_us": us(a + 0.001), **killed}
        for node in BROKERS
        for i, (a, _) in enumerate(DOWN[node], 1)
    ]
    stopped = {"code": 0, "by": "stop", "expected": True}
    return lines + [{"node": n, "incarnation": 9, "t_us": us(33.05), **stopped} for n in BROKERS]


def _trace(made: Storm, node: str) -> list[Line]:
    """One broker's events: processes, roles, HW as leader, one truncation."""

    def incarnation(at: float) -> int:
        return 1 + sum(at >= b for _, b in DOWN[node])

    def line(at: float, event: str, **fields: Any) -> Line:
        head = {"t_us": us(at), "node": node, "incarnation": incarnation(at), "event": event}
        return {**head, **fields}

    lines = [line(-1.5, "started", protocol="kafka", bugs=[], clean=True)]
    lines += [line(b, "started", protocol="kafka", bugs=[], clean=False) for _, b in DOWN[node]]
    for partition, terms in LEADERS.items():
        last = None
        for start, leader, epoch, _ in terms:
            at = start + 0.01 + (2.6 if (node, start) == ("n2", 14.62) else 0.0)
            if (leader, epoch) == last or any(a <= at < b for a, b in DOWN[node]):
                continue
            last = (leader, epoch)
            role = "leader" if leader == node else "follower"
            lines.append(
                line(
                    at,
                    "role",
                    partition=partition,
                    role=role,
                    leader=leader,
                    leader_epoch=epoch,
                    partition_epoch=0,
                    leo=0,
                    hw=0,
                )
            )
        for offset, _, epoch, t_us, _ in made.batches[partition]:
            at = (t_us - ZERO_US) / 1e6
            if made.leader(partition, at) == (node, epoch):
                lines.append(
                    line(
                        at,
                        "append",
                        partition=partition,
                        base_offset=offset,
                        leo=offset + 5,
                        leader_epoch=epoch,
                        hash=CHAIN,
                        role="leader",
                    )
                )
                lines.append(
                    line(
                        at,
                        "hw",
                        partition=partition,
                        hw=offset + 5,
                        leo=offset + 5,
                        leader_epoch=epoch,
                        role="leader",
                        batch_end=offset + 5,
                        hash=CHAIN,
                    )
                )
    if node == "n1":
        lines.append(
            line(
                7.41,
                "truncated",
                partition="log-0",
                from_leo=70,
                leo=65,
                hw=65,
                reason="diverging_epoch",
                hash=CHAIN,
            )
        )
    return sorted(lines, key=lambda line: line["t_us"])


def _voter() -> list[Line]:
    head = {"node": "v1", "incarnation": 1}
    lines: list[Line] = [{**head, "t_us": us(-1.6), "event": "started", "protocol": "kafka"}]
    lines.append({**head, "t_us": us(-1.4), "event": "controller", "state": "active", "term": 1})
    for partition, terms in LEADERS.items():
        for epoch, (start, leader, leader_epoch, isr) in enumerate(terms):
            lines.append(
                {
                    **head,
                    "t_us": us(start),
                    "event": "partition",
                    "partition": partition,
                    "leader": leader,
                    "leader_epoch": leader_epoch,
                    "partition_epoch": epoch,
                    "isr": list(isr),
                    "elr": [],
                    "unclean": False,
                }
            )
    return sorted(lines, key=lambda line: line["t_us"])


def _log(made: Storm, node: str) -> list[Line]:
    """One replica's log; in a broken storm n2 keeps what the others never had."""
    lines: list[Line] = []
    for partition, batches in made.batches.items():
        own = batches
        if made.diverged and partition == "log-0" and node == "n2":
            low, high = made.diverged[0][0], made.diverged[-1][0] + 5
            own = [b for b in batches if not low <= b[0] < high] + made.diverged
            own.sort()
        end = own[-1][0] + 5 if own else 0
        epochs: list[list[int]] = []
        for offset, _, epoch, *_ in own:
            if not epochs or epochs[-1][0] != epoch:
                epochs.append([epoch, offset])
        head = {"node": node, "partition": partition}
        behind = 10 if node == "n2" else 0
        lines.append(
            {**head, "offset": 0, "count": 0, "hw": end - behind, "leo": end, "epochs": epochs}
        )
        for offset, value, epoch, *_ in own:
            lines.append(
                {
                    **head,
                    "offset": offset,
                    "count": 5,
                    "epoch": epoch,
                    "hash": f"{value * 2654435761 % 2**64:016x}",
                    "records": [[offset, value, 5, epoch]],
                }
            )
    return [*lines, {"node": node, "partition": "", "offset": 0, "count": 0}]


def _results(folder: Path, made: Storm) -> Line:
    run = f"{folder.parent.name}/{folder.name}"
    valid = [
        ("no-lost-acknowledged-write", 10_060),
        ("committed-prefix-agreement", 8_411),
        ("offsets-and-order", 40_233),
        ("reads-below-hw", 988),
        ("log-and-metadata", 2_012),
        ("liveness", 4),
        ("exercise", 8),
    ]
    properties: list[Line] = [
        {"property": name, "verdict": "valid", "examined": n} for name, n in valid
    ]
    if not made.broken:
        sentence = (
            "Nothing acknowledged was lost: all 4 partitions agree on their committed prefix "
            "after 7 faults."
        )
        return {"run": run, "verdict": "valid", "sentence": sentence, "properties": properties}
    for line, reason in zip(
        properties, ("15 acknowledged records are gone", "n2 differs from n1 and n3"), strict=False
    ):
        line.update(verdict="invalid", reason=reason)
    low, value = made.diverged[0][:2]
    high = made.diverged[-1][0] + 4
    witnesses = [
        {
            "what": "acknowledged here",
            "op": b[4],
            "t_us": b[3],
            "offset": b[0],
            "value": b[1],
            "epoch": b[2],
            "client": "c3",
            "process": 2,
            "node": "n2",
        }
        for b in made.diverged
    ]
    witnesses.append(
        {
            "what": "offset written again in a later epoch",
            "node": "n3",
            "t_us": us(14.66),
            "offset": low,
            "epoch": 2,
        }
    )
    anomalies = [
        {
            "property": "no-lost-acknowledged-write",
            "name": "lost",
            "run": run,
            "partition": "log-0",
            "count": 15,
            "message": f"Offsets {low} to {high} of log-0 were acknowledged in epoch 1 "
            "and are gone: epoch 2 wrote other values there. No replica but n2 holds them.",
            "offset": low,
            "t_us": us(14.66),
            "witnesses": witnesses,
        },
        {
            "property": "committed-prefix-agreement",
            "name": "divergence",
            "run": run,
            "partition": "log-0",
            "count": 1,
            "offset": low,
            "t_us": us(33.0),
            "message": f"The final log of n2 differs from n1 and n3 at offsets {low} to {high}, "
            "all below its high watermark.",
            "witnesses": [
                {
                    "what": "final log",
                    "node": n,
                    "offset": low,
                    "epoch": e,
                    "value": v,
                    "hash": f"{v * 2654435761 % 2**64:016x}",
                }
                for n, e, v in (("n1", 2, value + 900), ("n2", 1, value))
            ],
        },
        {
            "property": "liveness",
            "name": "no-progress",
            "run": run,
            "partition": "log-2",
            "verdict": "valid",
            "allowed": "no progress is owed below min.insync.replicas",
            "message": "log-2 acknowledged nothing for 3.1 s after n3 was paused.",
            "t_us": us(9.1),
            "witnesses": [{"what": "last acknowledgement before the gap", "t_us": us(9.0)}],
        },
    ]
    sentence = (
        f"log-0 lost {high - low + 1} acknowledged records: offsets {low}–{high}, acknowledged by "
        "n2 up to 13.0 s, were overwritten by n3, elected for epoch 2 at 14.62 s without them."
    )
    return {
        "run": run,
        "verdict": "invalid",
        "sentence": sentence,
        "properties": properties,
        "anomalies": anomalies,
    }


def empty(folder: Path) -> Path:
    """A run whose cluster never came up: run.json, schedule.json and an empty history."""
    plan = s.Schedule(name="empty", workload=s.Workload(seed=1))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedule.json").write_bytes(plan.to_json())
    info = run_json(folder, plan, {})
    info["phases"] = {"start_us": BASE_US}
    sentence = "n2 could not be started: its port was taken"
    info["problems"] = [{"kind": "not-healed", "sentence": sentence}]
    write_json(folder / "run.json", info)
    (folder / "history.jsonl").write_bytes(b"")
    return folder


def killed(folder: Path) -> Path:
    """A storm whose harness was killed at 12 s: no results, no logs, half lines at the ends."""
    storm(folder, judged=False)
    for node in BROKERS:
        (folder / "logs" / f"{node}.jsonl").unlink()
    (folder / "logs").rmdir()
    limit = us(12.0)
    for file in [*folder.glob("*.jsonl"), *folder.glob("trace/*.jsonl")]:
        kept = [x for x in file.read_text().splitlines() if json.loads(x)["t_us"] < limit]
        half = kept.pop() if kept else ""
        file.write_text("".join(x + "\n" for x in kept) + half[: len(half) // 2])
    info = json.loads((folder / "run.json").read_text())
    info["state"] = "running"
    info["phases"] = {"start_us": BASE_US, "storm_us": ZERO_US}
    write_json(folder / "run.json", info)
    return folder


def many(folder: Path, operations: int, *, clients: int = 64, partitions: int = 4) -> Path:
    """A valid run of about `operations` operations, one in fifty failed or unknown."""
    storm(folder, rate=2.0)
    rng = random.Random(3)
    step = 30e6 / operations
    lines = []
    for i in range(operations):
        t, client = ZERO_US + int(i * step), f"c{1 + i % clients}"
        outcome = "ok" if i % 50 else ("info", "fail")[i // 50 % 2]
        head = f'{{"op":{i},"process":{i % clients},"client":"{client}","f":"send","t_us":'
        part, base = f"log-{i % partitions}", i // partitions * 5
        send = f'"sends":[{{"partition":"{part}","value":{i * 5},"count":5'
        lines.append(f'{head}{t},"type":"invoke",{send}}}]}}')
        end = t + int(rng.lognormvariate(9, 0.8))
        lines.append(f'{head}{end},"type":"{outcome}",{send},"offset":{base}}}]}}')
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    # The logs of the small storm would contradict this history.
    shutil.rmtree(folder / "logs")
    return folder
