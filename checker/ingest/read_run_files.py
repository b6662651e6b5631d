"""Reading of run.json, schedule.json, faults.jsonl and exits.jsonl, which are about a run as a
whole.

A field of run.json with the wrong type is a problem, and its default is used instead. The default
promise is the strictest one, so that a file that cannot be read excuses nothing. Files that the run
should have left and did not are reported too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from checker.evidence.columns import Rows, rows
from checker.evidence.facts import Exits, FaultAction, FaultLines, GroupStates, RunFacts, Served
from checker.evidence.run_meta import RunMeta
from checker.ingest.lines import Files, Problems
from checker.ingest.source import HISTORIES, Ingested, Source, files_in, why
from harness.formats.history import GROUP_STATES, GroupState
from harness.formats.problem import Exit, node_ended, rank
from harness.formats.run_info import FIELDS, understood, unknown_promises
from harness.formats.seal import PROBES
from nemesis.formats.cluster_spec import Cluster
from nemesis.formats.fault_log import STOPS_A_NODE, FaultLine
from nemesis.formats.message_log import MessageLine
from node.formats.bounds import Time
from node.formats.json_input import JsonReader, Unreadable, decode, read_bytes
from node.formats.trace import METADATA_PARTITION

_Form = TypeVar("_Form", bound=msgspec.Struct)


class _Probed(msgspec.Struct, frozen=True):
    """A change that answers to probes showed."""

    t_us: Time
    node: str
    role: str = ""
    partition: str = ""
    isr: tuple[str, ...] | None = None


_AFTERWARDS_US: Final = 60_000_000
"""The time after the end of a run in which its last processes may still end."""
_TIMED: Final = (("faults", FaultLine), ("exits", Exit), ("messages", MessageLine))
ACTIONS: Final = {
    "inject": FaultAction.INJECT,
    "heal": FaultAction.HEAL,
    "skipped": FaultAction.SKIPPED,
    "missed": FaultAction.MISSED,
    "effect": FaultAction.EFFECT,
}


_OF_RUN_INFO: Final = {field.name for field in msgspec.structs.fields(RunMeta)} & FIELDS.keys()


def read_meta(folder: Path, problems: Problems, files: Files | None = None) -> RunMeta:
    """Read a run's metadata from run.json and schedule.json; report errors to `problems`."""
    known = _object(folder / "run.json", problems, files)
    if known is None:
        problems.add(
            "run.json", "run.json is missing or unreadable: promise and phases are unknown."
        )
        known = {}
    schedule = _object(folder / "schedule.json", problems, files) or {}
    info, sentences = understood(known, _OF_RUN_INFO)
    for sentence in sentences:
        problems.add("run.json", sentence)
    unknown = unknown_promises(known)
    for name in unknown:
        problems.add(
            "run.json",
            f"run.json: the promise has a field '{name}' that is not known (docs/checks.md lists "
            "them): what the system promises is not understood.",
        )
    info["promise_understood"] = not unknown
    info["declared"] = "capabilities" in info
    fields: dict[str, Any] = info | {"run": info.get("run") or folder.name}
    drawn, faults = schedule.get("drawn"), schedule.get("faults")
    fields["drawn"] = drawn is True
    if isinstance(faults, list):
        fields["faults"] = tuple(
            str(fault.get("what", "?")) if isinstance(fault, dict) else "?" for fault in faults
        )
    if why := _of_another_run(known, folder, files):
        problems.add("schedule.json", why)
    cluster = schedule.get("cluster")
    min_isr = cluster.get("min_isr") if isinstance(cluster, dict) else None
    fields["min_isr"] = min_isr if isinstance(min_isr, int) else Cluster().min_isr
    workload = schedule.get("workload")
    workload = workload if isinstance(workload, dict) else {}
    operations = workload.get("operations")
    if isinstance(operations, list):
        fields["operations"] = tuple(
            (str(each.get("what", "?")), str(each.get("must", "ok")))
            for each in operations
            if isinstance(each, dict)
        )
    drawn_clients = any(workload.get(name) != 0 for name in ("clients", "consumers"))
    fields["scripted"] = bool(fields.get("operations")) and not drawn_clients
    return RunMeta(**fields)


def _of_another_run(known: dict[str, Any], folder: Path, files: Files | None) -> str:
    """Say that the schedule is not the one that run.json names; "" if it is, or none is named."""
    named = known.get("schedule_digest")
    if not isinstance(named, str) or not named:
        return ""
    try:
        text = read_bytes(folder / "schedule.json") if files is None else files["schedule.json"]
        assert isinstance(text, bytes), "one value, and not lines"
        found = hashlib.sha256(msgspec.json.encode(decode(text, Any), order="sorted") + b"\n")
    except (OSError, KeyError, Unreadable):
        return f"schedule.json is missing or unreadable, and run.json names schedule {named}."
    digest = found.hexdigest()[: len(named)]
    if digest == named:
        return ""
    return f"schedule.json is schedule {digest}, and run.json names schedule {named}."


def _of_the_run(
    name: str, lines: Iterable[tuple[int, Any]], into: Ingested
) -> list[tuple[int, Any]]:
    """Return the lines from the time of the run; report a file that has others."""
    phases, every = into.meta.phases, list(lines)
    if not phases.start_us or not phases.end_us or into.meta.source:
        return every
    end_us = phases.end_us + _AFTERWARDS_US
    others = [each.t_us for _, each in every if not phases.start_us <= each.t_us <= end_us]
    if others:
        into.problems.add(
            name,
            f"{name} has a line at {others[0]} us, but the run lasted from {phases.start_us} to "
            f"{phases.end_us} us: it may be of another run.",
        )
    return [(number, each) for number, each in every if each.t_us not in others]


def _object(path: Path, problems: Problems, files: Files | None) -> dict[str, Any] | None:
    """Return a JSON object from a file, None if the file is missing or contains something else."""
    try:
        text = read_bytes(path) if files is None else files[path.name]
        assert isinstance(text, bytes), "one value, and not lines"
        found = decode(text, Any)
    except (FileNotFoundError, KeyError):
        return None
    except (OSError, Unreadable) as error:
        problems.add(path.name, f"{path.name} cannot be read: {why(error)}.")
        return None
    return found if isinstance(found, dict) else None


def read_run_files(source: Source, into: Ingested) -> None:
    """Read the files about a whole run; add the tables faults and exits, and facts, to `into`."""
    run, meta = source.run, into.meta
    partitions = sorted({*meta.partitions, METADATA_PARTITION, ""})
    text = msgspec.json.encode(meta).decode()
    into.facts.append(rows(RunFacts, run, partitions, text=text))
    for problem in sorted(meta.problems, key=rank):
        into.problems.add("harness", problem.in_a_verdict)
    if meta.state == "running":
        into.problems.add(
            "state",
            "The run never finished: its harness was killed, or could not write its last run.json.",
        )
    _missing_files(source, into)
    faults, exits, _ = (
        _of_the_run(f"{name}.jsonl", _lines(source, f"{name}.jsonl", form, into), into)
        for name, form in _TIMED
    )
    _unreported_exits((each for _, each in exits), into)
    for number, fault in faults:
        known = meta.faults[fault.fault : fault.fault + 1] if fault.fault >= 0 else (fault.what,)
        if known != (fault.what,):
            into.problems.add(
                "faults.jsonl",
                f"faults.jsonl line {number} tells of fault {fault.fault} ({fault.what}), which "
                "schedule.json does not have.",
            )
    into.facts.extend(_facts(run, partitions, faults, exits))
    into.facts.append(_served(run, _lines(source, PROBES, _Probed, into)))
    states = [*_lines(source, GROUP_STATES, GroupState, into)]
    if states:
        texts = [msgspec.json.encode(state).decode() for _, state in states]
        of_lines = [number for number, _ in states]
        into.facts.append(rows(GroupStates, run, "", line=of_lines, text=texts))


def _unreported_exits(exits: Iterable[Exit], into: Ingested) -> None:
    """Add a sentence for a process that was ended from outside, if a killed harness wrote none."""
    if any(problem.kind == "node-ended" for problem in into.meta.problems):
        return
    for each in exits:
        if each.by == "outside":
            into.problems.add("harness", node_ended(each.node, each.code).sentence)


def _served(run: int, answers: Iterable[tuple[int, _Probed]]) -> Rows:
    """Return when answers to probes began to name a node as leader or in sync, and when they ceased
    to; nothing if they never name a node in sync."""
    known = [answer for _, answer in answers]
    named: dict[str, set[str]] = {}
    before, turns = set[str](), list[tuple[int, str, bool]]()
    for each in known if any(answer.isr for answer in known) else ():
        if each.isr is not None:
            named[each.partition] = {*each.isr}
        elif each.role == "leader":
            named.setdefault(each.partition, set()).add(each.node)
        now = set[str]().union(*named.values())
        turns += [(each.t_us, node, node in now) for node in sorted(now ^ before)]
        before = now
    t_us, node, serves = zip(*turns, strict=True) if turns else ((), (), ())
    return rows(Served, run, "", t_us=[*t_us], node=[*node], serves=[*serves])


def _missing_files(source: Source, into: Ingested) -> None:
    """Report each file that a finished run should have and has not."""
    meta, folder = into.meta, source.folder
    if source.files is None and not folder.is_dir():
        into.problems.add("folder", f"There is no run folder '{folder.name}'.")
        return
    kept = source.files is None and (folder / "tables" / "ops.parquet").exists()
    if not kept and not any(map(source.has, HISTORIES)):
        into.problems.add("history", "history.jsonl is missing: there is nothing to judge.")
    for capability, where, nodes in (
        ("trace", "trace", meta.nodes()),
        ("logs", "logs", meta.brokers),
    ):
        if source.files is None and (reason := files_in(folder / where, "*")[1]):
            into.problems.add(where, f"The files in {where} cannot be read: {reason}.")
            continue
        if capability in meta.capabilities:
            for node in nodes:
                if not source.has(f"{where}/{node}.jsonl"):
                    into.problems.add(where, f"{where}/{node}.jsonl is missing.")
        elif meta.is_undeclared(capability) and source.names_in(where):
            into.problems.note(
                f"{where}/ has files that are not examined: the system does not declare "
                f"{capability}."
            )


def _lines(
    source: Source, name: str, form: type[_Form], into: Ingested
) -> Iterator[tuple[int, _Form]]:
    """Yield the lines of a small file that can be understood, with their numbers."""
    decoder = JsonReader(form)
    if not source.has(name):
        return
    if (objects := source.objects(name)) is not None:
        yield from enumerate(objects, 1)
        return
    try:
        for line in source.lines(name):
            try:
                yield line.number, decoder.decode(line.data)
            except Unreadable as error:
                into.problems.add(
                    f"{name}: line", f"{name} line {line.number} is not understood: {why(error)}."
                )
    except OSError as error:
        into.problems.add(name, f"{name} cannot be read to its end: {why(error)}.")


def _facts(
    run: int,
    partitions: list[str],
    faults: list[tuple[int, FaultLine]],
    exits: list[tuple[int, Exit]],
) -> Iterator[Rows]:
    """Yield all faults and exits for each partition; the partitions share their columns."""
    of_run = (
        rows(
            FaultLines,
            run,
            "",
            line=[number for number, _ in faults],
            fault=[f.fault for _, f in faults],
            t_us=[f.t_us for _, f in faults],
            done_us=[f.done_us or f.t_us for _, f in faults],
            action=[ACTIONS[f.action] for _, f in faults],
            affected=[f.affected for _, f in faults],
            node=[",".join(f.nodes) for _, f in faults],
            whole=[_is_whole(f) for _, f in faults],
            text=[f"{f.what} {f.detail}".strip() for _, f in faults],
        ),
        rows(
            Exits,
            run,
            "",
            line=[number for number, _ in exits],
            t_us=[e.t_us for _, e in exits],
            incarnation=[e.incarnation for _, e in exits],
            code=[-1 if e.code is None else e.code for _, e in exits],
            node=[e.node for _, e in exits],
            by=[e.by for _, e in exits],
            expected=[e.expected for _, e in exits],
            said=[str(e.said or "") for _, e in exits],
        ),
    )
    for partition in partitions:
        yield from (replace(each, partition=partition) for each in of_run if each.count)


def _is_whole(fault: FaultLine) -> bool:
    """Return whether a fault stops its nodes, or cuts them off from nodes and clients."""
    cuts = fault.what == "isolate" and any(end[:1] == "c" for link in fault.links for end in link)
    return cuts or fault.what in STOPS_A_NODE
