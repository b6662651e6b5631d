"""Making the schedule of a run from the options of `run` (pure but for reading a schedule file)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.runs.requests import RunRequest
from harness.systems.disks import choose, kinds_on_disks
from harness.systems.interface import System
from harness.systems.setup import Resolved, kinds_of, setup_of
from nemesis import ready_made
from nemesis.draw import at_groups, draw, expand
from nemesis.faults import aliases, kinds_on
from nemesis.faults.membership import SPARES
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Cluster, Expectation, Schedule, Workload
from nemesis.links.abilities import HUB
from node.formats.errors import UsageError

DEFAULT_FAULTS: Final = "all"
NO_FAULTS: Final = ("none", "")
DEFAULT_REPLICATION: Final = 3
DEFAULT_MIN_ISR: Final = 2
_FLUSH_DIGITS: Final = 8
_SEEDS: Final = 1 << 31
_OF_CLUSTER: Final = (
    *("brokers", "voters", "partitions", "replication_factor", "min_isr", "retention_records"),
    *("fetch_max_bytes", "write_back_ms"),
)
_ACKS: Final = {"0": 0, "1": 1, "all": -1, "-1": -1}


def to_schedule(request: RunRequest) -> Schedule:
    """Return the schedule that the options describe. Raises UsageError for a wrong option."""
    return requested(request)[0]


def requested(request: RunRequest) -> tuple[Schedule, Resolved]:
    """Return the schedule that the options describe, and what it runs on. Raises UsageError."""
    setup = setup_of(
        request.schedule, request.system, request.settings, request.links, request.disk
    )
    system = setup.find()
    if request.schedule is not None:
        if request.faults is not None:
            raise UsageError("--faults and --schedule exclude each other: a schedule has faults")
        base, source = load_schedule(request.schedule, system), str(request.schedule)
    else:
        base, source = Schedule(), "options"
    links = system.link_form(setup.links or None)
    _check_options(request, system)
    cluster = _cluster(request, base.cluster, system)
    seed = request.seed
    if seed is None and request.schedule is None:
        seed = random.SystemRandom().randrange(_SEEDS)
    usual = base.workload if request.schedule is not None else system.workload(base.workload)
    workload = _workload(request, usual, seed)
    schedule = msgspec.structs.replace(base, cluster=cluster, workload=workload)
    if cluster != base.cluster:
        # What is expected of one protocol says nothing about another.
        schedule = msgspec.structs.replace(schedule, expectation=Expectation())
    schedules.check(schedule, source=source)
    if request.schedule is None:
        kinds = _kinds(request, cluster, system, links)
        cluster = msgspec.structs.replace(cluster, spares=SPARES * ("join" in kinds))
        abilities = system.link_abilities(links) or HUB
        faults = draw(
            cluster,
            workload,
            kinds,
            workload.seed,
            abilities,
            maps=system.simulated,
            restart_ms=system.restart_ms,
        )
        if system.has_members or workload.members:
            faults = at_groups(faults, f"{workload.seed}")
        schedule = msgspec.structs.replace(schedule, cluster=cluster, faults=faults, drawn=True)
        schedules.check(schedule, source="drawn storm")
    # Before a folder is made: a fault may need a tool that this machine lacks.
    on = Resolved(system, links, system.disk_form(setup.disk or None, kinds_of(schedule)))
    on.check(schedule)
    return schedule, on


def _kinds(request: RunRequest, cluster: Cluster, system: System, links: str) -> tuple[str, ...]:
    """Return the kinds of faults to draw from, of an alias those that are possible."""
    given = fault_kinds(request.faults or DEFAULT_FAULTS)
    system.check_kinds(expand([kind for kind in given if kind not in aliases()], cluster))
    named = {kind for kind in given if kind not in aliases()}
    disk = choose(request.disk, system.disk_forms, expand(given, cluster))
    possible = set(kinds_on(system.link_abilities(links))) & kinds_on_disks(disk)
    taken = {kind for kind in system.faults if kind in possible or kind in named}
    found = tuple(kind for kind in expand(given, cluster) if kind in taken)
    if given and not found:
        raise UsageError(
            f"--faults {request.faults}: system '{system.name}' can take none of them with "
            f"{cluster.brokers} brokers, --links {links} and --disk {disk}: name others, or none"
        )
    return found


def load_schedule(path: Path, system: System | None = None) -> Schedule:
    """Load a schedule from a file or run folder, or by the name of a ready-made one. The times of a
    ready-made schedule are scaled to the failover and restart times of `system`."""
    if path.exists() or len(path.parts) != 1 or path.suffix:
        return schedules.load(path)
    if system is None:
        return ready_made.load(path.name)
    failover_ms = system.limits(Cluster()).session_ms
    return ready_made.load(path.name, failover_ms, system.restart_ms)


def fault_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds in a text such as `kill,pause`; none for "none". Raises UsageError for a
    comma without a name beside it."""
    names = tuple(name.strip() for name in text.split(","))
    if len(names) > 1 and "" in names:
        raise UsageError(f"--faults is '{text}', but a name is missing beside a comma")
    return tuple(name for name in names if name not in NO_FAULTS)


def default_name(schedule: Schedule) -> str:
    """Return the name of a run without `--name`: its protocol and its bugs."""
    return schedule.name or "-".join((schedule.cluster.protocol, *schedule.cluster.bugs))


def _check_options(request: RunRequest, system: System) -> None:
    """Refuse options that mean nothing to the system."""
    for name in system.unused:
        if getattr(request, name) is not None:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} is about our own brokers and means nothing to system '{system.name}': "
                "--set has its settings (see floodmark systems)"
            )


def _cluster(request: RunRequest, base: Cluster, system: System) -> Cluster:
    given = _given(request, _OF_CLUSTER)
    if request.schedule is None:
        # A small cluster is no mistake: then fewer replicas are meant.
        brokers = given.get("brokers", base.brokers)
        factor = given.setdefault("replication_factor", min(DEFAULT_REPLICATION, brokers))
        given.setdefault("min_isr", min(DEFAULT_MIN_ISR, factor))
    if request.flush is not None:
        given |= _flush(request.flush)
    given["protocol"] = request.protocol or base.protocol
    given["bugs"] = request.bugs or base.bugs
    return system.complete(msgspec.structs.replace(base, **given))


def _workload(request: RunRequest, base: Workload, seed: int | None) -> Workload:
    given = _given(request, ("clients", "consumers", "rate", "batch", "idempotent", "members"))
    if seed is not None:
        given["seed"] = seed
    if request.time_limit is not None:
        if not 0 < request.time_limit < math.inf:
            raise UsageError(
                f"--time-limit is {request.time_limit}, but must be a positive number of seconds"
            )
        given["duration_ms"] = round(request.time_limit * 1000)
    if request.acks is not None:
        if request.acks not in _ACKS:
            raise UsageError(f"--acks is '{request.acks}', but can only be 0, 1 or all")
        given["acks"] = _ACKS[request.acks]
    return msgspec.structs.replace(base, **given)


def _given(request: RunRequest, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of the options that were given."""
    return {n: value for n in names if (value := getattr(request, n)) is not None}


def _flush(text: str) -> dict[str, Any]:
    """`sync`, `async` or `async:MS`."""
    mode, colon, interval = text.partition(":")
    if mode == "sync" and not colon:
        return {"flush": "sync"}
    known = mode == "async" and (not colon or (interval.isascii() and interval.isdigit()))
    if not known or len(interval) > _FLUSH_DIGITS:
        raise UsageError(f"--flush is '{text}', but can only be sync, async or async:MILLISECONDS")
    return {"flush": "async"} | ({"flush_interval_ms": int(interval)} if colon else {})
