"""run.json, schedule.json, faults.jsonl and exits.jsonl: what is known of a run as a whole.

Also says which files a run should have left behind and did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from checker.evidence.facts import EXPECTED, FaultAction, Kind
from checker.ingest import tables
from checker.ingest.source import UNREADABLE, Ingested, Source, why
from harness.formats.exits import Exit
from nemesis.formats.fault_log import FaultLine
from node.formats.trace import METADATA_PARTITION

_Form = TypeVar("_Form", bound=msgspec.Struct)


ACTIONS: Final = {
    "inject": FaultAction.INJECT,
    "heal": FaultAction.HEAL,
    "skipped": FaultAction.SKIPPED,
    "missed": FaultAction.MISSED,
    "effect": FaultAction.EFFECT,
}


def read_head(source: Source, into: Ingested) -> None:
    """Read what concerns a whole run into `into`: tables faults and exits, and their facts."""
    run, meta = source.run, into.meta
    partitions = sorted({*meta.partitions, METADATA_PARTITION, ""})
    told = msgspec.json.encode(meta).decode()
    into.facts.append(into.make(run, Kind.META, partitions, text=told))
    for problem in meta.problems:
        # Of a foreign history they are about its lines, and speak for themselves.
        if meta.source:
            into.problems.add(problem, problem)
        else:
            into.problems.add("harness", f"The harness had trouble: {problem}")
    if meta.state == "running":
        into.problems.add("state", "The run never finished: its harness was killed.")
    _missing_files(source, into)
    faults = list(_lines(source, "faults.jsonl", FaultLine, into))
    exits = list(_lines(source, "exits.jsonl", Exit, into))
    if into.counts:
        _tables(into, faults, exits)
    into.facts.extend(_facts(run, faults, exits, into.make))


def _tables(
    into: Ingested, faults: list[tuple[int, FaultLine]], exits: list[tuple[int, Exit]]
) -> None:
    """The tables faults and exits."""
    meta = into.meta
    into.tables["faults"] = tables.from_rows(
        "faults",
        (
            (
                meta.run,
                f.fault,
                f.what,
                f.action,
                f.t_us,
                f.done_us,
                f.on,
                f.nodes,
                f.links,
                f.dropped or 0,
                f.delayed or 0,
                f.detail,
            )
            for _, f in faults
        ),
    )
    into.tables["exits"] = tables.from_rows(
        "exits",
        ((meta.run, e.node, e.incarnation, e.t_us, e.code, e.by, e.expected) for _, e in exits),
    )


def _missing_files(source: Source, into: Ingested) -> None:
    """A sentence for each file that a finished run should have and has not."""
    meta, folder = into.meta, source.folder
    if source.files is None and not folder.is_dir():
        into.problems.add("folder", f"There is no run folder '{folder.name}'.")
        return
    kept = source.files is None and (folder / "tables" / "ops.parquet").exists()
    if not kept and not source.has("history.jsonl"):
        into.problems.add("history", "history.jsonl is missing: there is nothing to judge.")
    for capability, where, nodes in (
        ("trace", "trace", meta.nodes()),
        ("logs", "logs", meta.brokers),
    ):
        if capability in meta.capabilities:
            for node in nodes:
                if not source.has(f"{where}/{node}.jsonl"):
                    into.problems.add(where, f"{where}/{node}.jsonl is missing.")


def _lines(
    source: Source, name: str, form: type[_Form], into: Ingested
) -> Iterator[tuple[int, _Form]]:
    """The lines of a small file that can be understood, with their numbers."""
    decoder = msgspec.json.Decoder(form)
    if not source.has(name):
        return
    try:
        for line in source.lines(name):
            try:
                yield line.number, decoder.decode(line.data)
            except UNREADABLE as error:
                into.problems.add(
                    f"{name}: line", f"{name} line {line.number} is not understood: {why(error)}."
                )
    except OSError as error:
        into.problems.add(name, f"{name} cannot be read to its end: {error.strerror}.")


def _facts(
    run: int,
    faults: list[tuple[int, FaultLine]],
    exits: list[tuple[int, Exit]],
    make: Callable[..., Any],
) -> Iterator[pa.RecordBatch]:
    """Facts of faults and exits."""
    if faults:
        yield make(
            run,
            Kind.FAULT,
            "",
            op=[f.fault for _, f in faults],
            seq=[number for number, _ in faults],
            t0=[f.t_us for _, f in faults],
            t1=[f.done_us or f.t_us for _, f in faults],
            outcome=[ACTIONS[f.action] for _, f in faults],
            count=[f.affected for _, f in faults],
            node=[",".join(f.nodes) for _, f in faults],
            text=[f"{f.what} {f.detail}".strip() for _, f in faults],
        )
    if exits:
        yield make(
            run,
            Kind.EXIT,
            "",
            op=[number for number, _ in exits],
            t1=[e.t_us for _, e in exits],
            seq=[e.incarnation for _, e in exits],
            value=[-1 if e.code is None else e.code for _, e in exits],
            node=[e.node for _, e in exits],
            text=[e.by for _, e in exits],
            flags=[EXPECTED if e.expected else 0 for _, e in exits],
        )
