"""Tells tiny runs: a story of a few lines becomes a run folder that the checker judges.

Operations happen one after another, a millisecond each, unless `begin` and `end` (milliseconds)
say otherwise. Batches are (value, count) or (value, count, epoch); a log is a list of batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from checker.engine.local import check_run
from checker.evidence.columns import Rows
from checker.formats.verdict import Anomaly, RunResult, Verdict
from checker.ingest.ingest import ingest, sources
from harness.formats.history import LogRun, Op, OpKind, OpType, Read, RecordRun, Send, encode
from harness.formats.seal import PROBES
from tests.support.checker.group_steps import GroupSteps

P = "log-0"
NODES = ("n1", "n2", "n3")
STORM_MS = 1_000
Batch = tuple[int, ...]


def hash_of(batches: Sequence[Batch]) -> str:
    """Return the prefix hash of a log: any function of its batches will do."""
    text = json.dumps([(b[0], b[1], b[2] if len(b) > 2 else 0) for b in batches])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest() if batches else ""


def end_of(batches: Sequence[Batch]) -> int:
    """Return the log end offset of batches laid end to end from offset 0."""
    return sum(batch[1] for batch in batches)


class Story(GroupSteps):
    """One run, written line by line."""

    def __init__(self, *partitions: str, **run: Any) -> None:
        self.partitions = partitions or (P,)
        self.now_ms = STORM_MS
        self.ops = 0
        self.history: list[Op] = []
        self.traces: dict[str, list[dict[str, Any]]] = {node: [] for node in (*NODES, "v1")}
        self.logs: dict[str, list[LogRun]] = {node: [] for node in NODES}
        self.faults: list[dict[str, Any]] = []
        self.exits: list[dict[str, Any]] = []
        self.schedule: dict[str, Any] = {"faults": []}
        self.extra: dict[str, bytes] = {}
        self.unfinished: set[str] = set()
        """Nodes whose dump lacks its last line."""
        self.torn = False
        self.as_told = False
        """Whether lines stand in the order in which they were told, and not in that of time."""
        self.run: dict[str, Any] = {
            "format": 2,
            "run": "story",
            "state": "finished",
            "capabilities": ["trace", "epochs"],
            "promise": {
                "acks": -1,
                "flush": "sync",
                "unclean_election": False,
                "durable_acks": True,
                "contiguous_offsets": True,
            },
            "partitions": {p: list(NODES) for p in self.partitions},
            "brokers": list(NODES),
            "voters": ["v1"],
            "recovery_limit_ms": 2000,
            "phases": {"start_us": 1, "storm_us": STORM_MS * 1000},
        }
        self.run.update(run)

    # -- what clients do -------------------------------------------------------------------------

    def op(
        self,
        f: OpKind,
        outcome: OpType | None,
        *,
        sends: Sequence[Send] = (),
        acked: Sequence[Send] | None = None,
        reads: Sequence[Read] = (),
        process: int,
        client: str = "",
        final: bool = False,
        begin: float | None = None,
        end: float | None = None,
        partitions: tuple[str, ...] = (),
        rebalanced: tuple[str, ...] = (),
        step: int = -1,
        more: Mapping[str, Any] | None = None,
        said: Mapping[str, Any] | None = None,
    ) -> int:
        """Any operation; `outcome` None leaves it without completion. Returns its number. `more`:
        other fields of both lines; `said`: of its completion only."""
        number, self.ops = self.ops, self.ops + 1
        begin = self.now_ms if begin is None else STORM_MS + begin
        end = begin + 1 if end is None else STORM_MS + end
        self.now_ms = int(max(self.now_ms, end)) + 1
        common: dict[str, Any] = {
            "op": number,
            "process": process,
            "client": client or f"c{process}",
            "f": f,
            "final": final,
            "partitions": partitions,
            "step": step,
            **(more or {}),
        }
        self.history.append(Op(t_us=int(begin * 1000), type="invoke", sends=tuple(sends), **common))
        if outcome is not None:
            done = tuple(sends if acked is None else acked)
            self.history.append(
                Op(
                    t_us=int(end * 1000),
                    type=outcome,
                    sends=done,
                    reads=tuple(reads),
                    rebalanced=rebalanced,
                    **(common | dict(said or {})),
                )
            )
        return number

    def send(
        self,
        value: int,
        count: int = 1,
        *,
        at: int = -1,
        outcome: OpType | None = "ok",
        partition: str = P,
        process: int = 1,
        acks: int = -1,
        step: int = -1,
        **when: float | None,
    ) -> int:
        """Send a batch; `at` is the offset that the acknowledgement names."""
        sent = Send(partition=partition, value=value, count=count, acks=acks)
        known = Send(partition=partition, value=value, count=count, acks=acks, offset=at)
        return self.op(
            "send",
            outcome,
            sends=[sent],
            acked=[known],
            process=process,
            step=step,
            **when,  # type: ignore[arg-type]
        )

    def each(
        self, first: int, count: int, *, at: int, every: int | None = None, **how: Any
    ) -> None:
        """Send records of rising values at rising offsets, one each `every` so many ms."""
        for n in range(count):
            when = {} if every is None else {"begin": n * every, "end": n * every + 1}
            self.send(first + n, at=at + n, **how, **when)

    def poll(
        self,
        *records: tuple[int, ...],
        start: int = -1,
        process: int = 9,
        hw: int = -1,
        partition: str = P,
        final: bool = False,
        outcome: OpType = "ok",
        node: str = "n1",
        rebalanced: tuple[str, ...] = (),
        **more: Any,
    ) -> int:
        """Poll runs of records: (offset, value[, count[, epoch]])."""
        runs = tuple(RecordRun(*record) for record in records)
        known = {name: more.pop(name) for name in ("at_end", "log_start") if name in more}
        read = Read(partition=partition, start=start, records=runs, hw=hw, node=node, **known)
        about = {"process": process, "final": final, "rebalanced": rebalanced}
        return self.op("poll", outcome, reads=[read], **about, **more)

    def txn(
        self,
        *sends: tuple[int, int] | tuple[int, int, str],
        reads: Sequence[tuple[Any, ...]] = (),
        process: int = 1,
        outcome: OpType = "ok",
        **how: Any,
    ) -> int:
        """Run a transaction: sends (value, offset[, partition]); reads: runs, (partition, *run)."""
        sent, known, polled = [], [], []
        for value, at, *where in sends:
            sent.append(Send(partition=where[0] if where else P, value=value))
            known.append(msgspec.structs.replace(sent[-1], offset=at))
        for each in reads:
            partition, *run = each if isinstance(each[0], str) else (P, *each)
            if run and isinstance(run[0], tuple):
                run = run[0]
            polled.append(Read(partition=partition, records=(RecordRun(*run),)))
        return self.op(
            "txn", outcome, sends=sent, acked=known, reads=polled, process=process, **how
        )

    def final(self, *records: tuple[int, ...], **how: Any) -> int:
        """Read from offset 0 as a fresh client, finally."""
        self.run["phases"].setdefault("final_us", self.now_ms * 1000)
        return self.poll(*records, start=0, process=99, final=True, **how)

    @property
    def now(self) -> int:
        return self.now_ms

    # -- what replicas say -----------------------------------------------------------------------

    def log(
        self,
        node: str,
        *batches: Batch,
        hw: int | None = None,
        partition: str = P,
        epochs: Sequence[tuple[int, int]] | None = None,
        **head: Any,
    ) -> None:
        """Write a replica's whole log after the run; by default all of it is committed. If a run
        has one, the logs of other replicas are missing unless written too."""
        if "logs" not in self.run["capabilities"]:
            self.run["capabilities"].append("logs")
        leo = end_of(batches)
        recomputed: dict[int, int] = {}
        lines = []
        offset = 0
        for i, batch in enumerate(batches):
            value, count = batch[:2]
            epoch = batch[2] if len(batch) > 2 else 0
            recomputed.setdefault(epoch, offset)
            lines.append(
                LogRun(
                    node=node,
                    partition=partition,
                    offset=offset,
                    count=count,
                    epoch=epoch,
                    hash=hash_of(batches[: i + 1]),
                    records=(RecordRun(offset, value, count),),
                )
            )
            offset += count
        cache = tuple(recomputed.items() if epochs is None else epochs)
        opening = {"hw": leo if hw is None else hw, "leo": leo, "epochs": cache, **head}
        self.logs[node].append(LogRun(node=node, partition=partition, offset=0, count=0, **opening))
        self.logs[node].extend(lines)

    def agree(self, *batches: Batch, **how: Any) -> None:
        """All replicas have this log."""
        for node in NODES:
            self.log(node, *batches, **how)

    def event(self, node: str, event: str, partition: str | None = P, **fields: Any) -> None:
        """Trace an event now, or at `ms` after the storm began."""
        ms = fields.pop("ms", None)
        t_us = (self.now_ms if ms is None else STORM_MS + ms) * 1000
        made = {"t_us": int(t_us), "node": node, "incarnation": 1, "event": event}
        if partition is not None:
            made["partition"] = partition
        self.traces.setdefault(node, []).append({**made, **fields})

    def hw(
        self, node: str, *batches: Batch, hw: int | None = None, epoch: int = 0, **how: Any
    ) -> None:
        """Move a replica's high watermark to the end of these batches."""
        end = end_of(batches)
        self.event(
            node,
            "hw",
            hw=end if hw is None else hw,
            leo=end,
            leader_epoch=epoch,
            role="leader",
            batch_end=end,
            hash=hash_of(batches),
            **how,
        )

    # -- what happened around them ---------------------------------------------------------------

    def phase(self, name: str, ms: float | None = None) -> None:
        """Begin a phase now, or `ms` after the storm began."""
        now = self.now_ms if ms is None else STORM_MS + ms
        self.run["phases"][f"{name}_us"] = int(now * 1000)

    def fault(self, index: int, what: str, action: str, ms: float, **more: Any) -> None:
        t_us = int((STORM_MS + ms) * 1000)
        self.faults.append({"fault": index, "what": what, "action": action, "t_us": t_us, **more})

    def answer(self, node: str, ms: float, **more: Any) -> None:
        """Let a probe be answered."""
        line = {"t_us": int((STORM_MS + ms) * 1000), "node": node, **more}
        self.extra[PROBES] = self.extra.get(PROBES, b"") + _lines([line])

    def busy(
        self, sends: int = 12, *, first: int = 1_000_000, partition: str = P, process: int = 50
    ) -> list[Batch]:
        """Send records that are acknowledged and read, to exercise a run; return their batches."""
        start = self.ops
        for i in range(sends):
            self.send(first + i, at=i, process=process, partition=partition)
        self.poll((0, first, sends), start=0, process=start + 1_000, partition=partition)
        return [(first + i, 1) for i in range(sends)]

    # -- what the run says of itself ------------------------------------------------------------

    def promise(self, **fields: Any) -> None:
        self.run["promise"] = self.run["promise"] | fields

    def promise_only(self, **fields: Any) -> None:
        """Replace the promise by these fields."""
        self.run["promise"] = fields

    def about(self, **fields: Any) -> None:
        self.run.update({k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()})

    def members(self, *nodes: str, stuck: str = "") -> None:
        """Let these be the members after the final heal, which did not come to its end if
        `stuck`."""
        expected = {node: [node, f"{node}-1"] for node in nodes}
        self.run["membership"] = {"final": nodes, "expected": expected, "stuck": stuck, "said": {}}

    def lists(self, node: str, *members: str) -> None:
        """Let a node list these members at the end."""
        self.run["membership"]["said"][node] = members

    def bypass(self, *links: tuple[str, str]) -> None:
        """Let nodes dial others past the links."""
        self.run["bypassed"] = [f"{dialer} dials {node} directly" for dialer, node in links]

    def problem(self, kind: str, *words: str) -> None:
        """Let the harness have had trouble of this kind."""
        known = {"kind": kind, "sentence": " ".join(words)}
        self.run["problems"] = [*self.run.get("problems", ()), known]

    def tear(self) -> None:
        """End the history with a line that cannot be read."""
        self.torn = True

    def in_this_order(self) -> None:
        """Keep the lines in the order in which they were written."""
        self.as_told = True

    def replicas(self, *nodes: str, partition: str = P) -> None:
        self.run["partitions"][partition] = list(nodes)

    def forget(self, *nodes: str) -> None:
        """Empty the dumps of these nodes."""
        for node in nodes:
            self.logs[node].clear()

    def drop(self, node: str, *numbers: int) -> None:
        """Lines are missing in a dump; its head is line 0."""
        for number in sorted(numbers, reverse=True):
            del self.logs[node][number]

    def edit(self, of: str, *numbers: int, **fields: Any) -> None:
        """Lines of the dump of a node have other fields; by default all of its lines."""
        lines = self.logs[of]
        if "records" in fields:
            fields["records"] = tuple(RecordRun(*run) for run in fields["records"])
        for number in numbers or range(len(lines)):
            lines[number] = msgspec.structs.replace(lines[number], **fields)

    def edit_all(self, *numbers: int, **fields: Any) -> None:
        """Change fields of the same lines of all dumps."""
        for node in NODES:
            self.edit(node, *numbers, **fields)

    def lose(self, *ops: int, end: bool = False) -> None:
        """Remove operations from the history, or only their completions."""
        self.history = [
            line for line in self.history if line.op not in ops or (end and line.type == "invoke")
        ]

    def unwrite(self, *lines: int) -> None:
        """Take lines out of the history, by their places."""
        self.history = [op for place, op in enumerate(self.history) if place not in lines]

    def last(self, **fields: Any) -> None:
        """Let the last line of the history have other fields."""
        self.history[-1] = msgspec.structs.replace(self.history[-1], **fields)

    def count_down(self) -> None:
        """Give the operations falling numbers."""
        self.history = [msgspec.structs.replace(op, op=999 - op.op) for op in self.history]

    def exit(self, node: str, *, code: int, expected: bool, ms: float = 200, **more: Any) -> None:
        t_us = int((STORM_MS + ms) * 1000)
        self.exits.append({"node": node, "t_us": t_us, "code": code, "expected": expected, **more})

    def scheduled(self, *faults: str, drawn: bool = False) -> None:
        """Put these kinds of faults into the schedule."""
        self.schedule |= {"drawn": drawn, "faults": [{"what": what} for what in faults]}

    def min_isr(self, count: int) -> None:
        self.schedule["cluster"] = {"min_isr": count}

    def script(self, *operations: tuple[str, str]) -> None:
        """Clients do single operations only: what, and how each must end."""
        steps = [{"what": what, "must": must} for what, must in operations]
        self.schedule["workload"] = {"clients": 0, "consumers": 0, "operations": steps}

    # -- the verdict -----------------------------------------------------------------------------

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps(self.run))
        (folder / "schedule.json").write_text(json.dumps(self.schedule))
        history = b"".join(encode(op) for op in self.lines()) + b"{\n" * self.torn
        (folder / "history.jsonl").write_bytes(history)
        for name, lines in (("faults", self.faults), ("exits", self.exits)):
            (folder / f"{name}.jsonl").write_bytes(_lines(lines))
        for where in ("trace", "logs"):
            (folder / where).mkdir(exist_ok=True)
        for node, events in self.traces.items():
            events = sorted(events, key=lambda e: e["t_us"])
            (folder / "trace" / f"{node}.jsonl").write_bytes(_lines(events))
        for node, runs in self.logs.items():
            end = [LogRun(node=node, partition="", offset=0, count=0)]
            lines = [*runs, *([] if node in self.unfinished else end)]
            (folder / "logs" / f"{node}.jsonl").write_bytes(_lines(lines))
        for name, data in self.extra.items():
            (folder / name).write_bytes(data)
        return folder

    def lines(self) -> list[Op]:
        """Return the history in the order of time; of one time, in the order written."""
        return self.history if self.as_told else sorted(self.history, key=lambda op: op.t_us)

    def check(self, folder: Path) -> RunResult:
        """Write the run folder and judge it in process."""
        return check_run(self.write(folder))


def facts_of(folder: Path) -> list[Rows]:
    return [block for source in sources(0, folder) for block in ingest(source, None).facts]


def _lines(items: Sequence[Any]) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


def against(result: RunResult) -> dict[str, int]:
    """Anomalies that count against the system, with their counts."""
    return {a.name: a.count for a in result.anomalies if a.verdict is Verdict.INVALID}


def one(result: RunResult, name: str) -> Anomaly:
    (found,) = [a for a in result.anomalies if a.name == name]
    return found
