"""What a run says about itself: `run.json` and the few words of `schedule.json` a verdict needs.

Read leniently: a field of the wrong type is a problem in words and takes its default; the default
promise is the strictest one, so that nothing is excused by a file that cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from checker.ingest.lines import Files, Problems
from harness.formats.run_info import FIELDS, Phases, Promise, understood

RECOVERY_LIMIT_MS: Final = 7500


class RunMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `run.json` and `schedule.json` that verdicts depend on."""

    run: str = ""
    protocol: str = ""
    state: str = "finished"
    capabilities: tuple[str, ...] = ()
    promise: Promise = Promise()
    partitions: dict[str, tuple[str, ...]] = {}
    brokers: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    phases: Phases = msgspec.field(default_factory=Phases)
    recovery_limit_ms: int = RECOVERY_LIMIT_MS
    problems: list[str] = []
    # "" for our own runs; else the form of the history of another tool, "edn", "jepsen" or "own".
    source: str = ""
    # Clients read until they had everything or gave up: what is unread at the end counts as unseen.
    complete_reads: bool = False
    history_whole: bool = True
    drawn: bool = False
    faults: tuple[str, ...] = ()
    scripted: bool = False
    operations: tuple[tuple[str, str], ...] = ()
    """What each of the schedule's own operations is, and how it must end ("ok" or "any")."""

    @property
    def is_jepsen(self) -> bool:
        """Whether the history is Jepsen's, in which values are unique in their key only."""
        return self.source in ("edn", "jepsen")

    def nodes(self) -> tuple[str, ...]:
        """Every process of the cluster that leaves a trace."""
        return self.brokers + self.voters

    @property
    def convergence_due_us(self) -> int:
        """From when on all replicas owe the same log: all in sync again, or the limit over."""
        limit_us = self.phases.heal_us + self.recovery_limit_ms * 1000
        return min(limit_us, self.phases.in_sync_us or limit_us)

    def since_storm(self, t_us: int) -> str:
        """A time in words: seconds since the storm began."""
        origin = self.phases.storm_us or self.phases.start_us
        return f"{(t_us - origin) / 1e6:.3f} s"


_OF_RUN_INFO: Final = {field.name for field in msgspec.structs.fields(RunMeta)} & FIELDS.keys()


def load(folder: Path, problems: Problems, files: Files | None = None) -> RunMeta:
    """Read what a run says about itself, from `files` where they are in memory; whatever is wrong
    is added to `problems`."""
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
    fields: dict[str, Any] = info | {"run": info.get("run") or folder.name}
    drawn, faults = schedule.get("drawn"), schedule.get("faults")
    fields["drawn"] = drawn is True
    if isinstance(faults, list):
        fields["faults"] = tuple(
            str(fault.get("what", "?")) if isinstance(fault, dict) else "?" for fault in faults
        )
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


def _object(path: Path, problems: Problems, files: Files | None) -> dict[str, Any] | None:
    """A JSON object from a file, None if it is not there or not one."""
    try:
        text = path.read_bytes() if files is None else files[path.name]
        found = msgspec.json.decode(text)
    except (FileNotFoundError, KeyError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problems.add(path.name, f"{path.name} cannot be read: {error}.")
        return None
    return found if isinstance(found, dict) else None
