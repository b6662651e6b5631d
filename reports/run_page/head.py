"""The head of the page: verdict, sentence, trust badges, facts, commands.

The terminal summary uses the same texts."""

from __future__ import annotations

import contextlib
import datetime
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from checker.formats.verdict import SEVERITY, PropertyResult, RunResult, Verdict
from nemesis.formats.schedule import Cluster
from reports import theme, wording
from reports.evidence.faults import in_vain
from reports.evidence.model import PROGRAM, RunFolder, read
from reports.evidence.operations import FAIL, INFO, OK

Tone = Literal["good", "bad", "unsure", "plain"]
MOST_PROBLEMS: Final = 3
MOST_IN_VAIN: Final = 2
SHRINKS: Final = "look for the smallest schedule that fails alike"
_SOURCES: Final = {"edn": "of Jepsen (EDN)", "jepsen": "of Jepsen (JSON)", "own": "a bare file"}
"""What the forms of histories of other tools are called."""


@dataclass(frozen=True)
class Badge:
    """A sign of how far to trust the run: a name, a short value, a sentence."""

    name: str
    value: str
    detail: str
    tone: Tone


@dataclass(frozen=True)
class ShownCommand:
    """A command line to copy, and its purpose."""

    does: str
    line: str


def sentence(folder: RunFolder) -> str:
    """Return the verdict in one sentence: the checker's, or the reason why there is none."""
    if folder.result is not None:
        names = (*folder.info.partitions, *folder.info.brokers)
        return wording.bare(wording.clip(folder.result.sentence), names) or folder.verdict
    recorded = len(folder.operations)
    what = wording.count(recorded, "operation") if recorded else "no operation"
    last = f" up to {folder.seconds(folder.operations.last_us()):.1f} s" if recorded else ""
    unreadable = (folder.path / "results.json").exists()
    if unreadable:
        return "No verdict: results.json cannot be read; judge the run again."
    match folder.info.state:
        case "running":
            return (
                "No verdict: the harness ended while the run was going on (killed, or still "
                f"running); {what} was recorded{last}."
            ).replace("operations was", "operations were")
        case "interrupted":
            return f"No verdict yet: the run was interrupted; it left {what}{last}."
        case "finished":
            return f"No verdict yet: the run finished with {what} and was not judged."
    return f"No verdict: the folder does not say how far the run came; it holds {what}{last}."


def badges(folder: RunFolder) -> list[Badge]:
    """Return the badges: harness clean, faults took effect, exercised, acknowledged operations."""
    return [
        _harness(folder),
        *_crashes(folder),
        _faults(folder),
        _exercised(folder),
        _acked(folder),
        _gap(folder),
        *_baseline(folder),
        *_again(folder),
    ]


def _harness(folder: RunFolder) -> Badge:
    problems = folder.problems
    if problems:
        said = " ".join(f"{problem.rstrip('.')}." for problem in problems[:MOST_PROBLEMS])
        more = f" And {len(problems) - MOST_PROBLEMS} more." if problems[MOST_PROBLEMS:] else ""
        return Badge("Harness", wording.count(len(problems), "problem"), f"{said}{more}", "bad")
    if folder.info.source:
        detail = "The history was recorded elsewhere, and does not say how its run went."
        return Badge("Harness", "not known", detail, "plain")
    if folder.info.state != "finished":
        state = folder.info.state or "unknown"
        return Badge("Harness", "not finished", f"The run's state is '{state}'.", "unsure")
    return Badge("Harness", "clean", "The run finished, without a problem of the harness.", "good")


def _crashes(folder: RunFolder) -> list[Badge]:
    """Return a badge for processes that ended unasked; none if every end is explained."""
    crashed = [x for x in folder.exits if not x.expected]
    if not crashed:
        return []
    names = wording.listing(sorted({x.node for x in crashed}))
    return [Badge("Processes", f"{len(crashed)} crashed", f"Unexplained exits of {names}.", "bad")]


def _faults(folder: RunFolder) -> Badge:
    faults = folder.faults
    if folder.info.source:
        return Badge("Faults", "not known", "A history alone does not say.", "plain")
    if not faults and folder.schedule is None:
        detail = "There is no schedule, and no fault was recorded."
        return Badge("Faults", "not known", detail, "unsure")
    if not faults:
        return Badge("Faults", "none", "The schedule holds no fault.", "plain")
    took = sum(f.took_effect for f in faults)
    left = {
        "skipped": sum(f.status == "skipped" for f in faults),
        "missed": sum(f.status == "missed" for f in faults),
        "not reached": sum(f.status == "waiting" for f in faults),
        "without a seen effect": sum(f.touched is False for f in faults),
    }
    rest = ", ".join(f"{number} {name}" for name, number in left.items() if number)
    lost = in_vain(faults)
    missed = folder.result is not None and "untouched" in folder.result.measures
    # By one rule, drawn or not: unless all took effect, what the checker says of them decides.
    usual: Tone = "plain" if _exercised(folder).tone == "good" and not missed else "unsure"
    words = [f"The others: {rest}" if rest else "All of them", *lost[:MOST_IN_VAIN]]
    return Badge(
        "Faults took effect",
        f"{took} of {len(faults)}",
        f"{'; '.join(words)}.",
        "good" if took == len(faults) and not lost and not missed else usual,
    )


def _exercised(folder: RunFolder) -> Badge:
    if folder.result is None:
        return Badge("Exercised", "not judged", "No verdict was written.", "unsure")
    found = next((p for p in folder.result.properties if "exercise" in p.property), None)
    if found is None:
        detail = "The checker does not say more."
        if folder.verdict is Verdict.NOT_EXERCISED:
            return Badge("Exercised", "no", detail, "unsure")
        return Badge("Exercised", "not stated", detail, "plain")
    good = found.verdict is Verdict.VALID
    if not good and folder.verdict is Verdict.INVALID:
        detail = "Enough to break a property. To hold as valid it would have been too little."
        return Badge("Exercised", "enough", detail, "plain")
    return Badge(
        "Exercised",
        "yes" if good else "no",
        wording.clip(found.reason, 240) or "Faults and clients did enough.",
        "good" if good else "unsure",
    )


def _acked(folder: RunFolder) -> Badge:
    ops = folder.operations
    acked = ops.acked
    sends, records = int(acked.sum()) * ops.every, int(ops.count[acked].sum()) * ops.every
    by = [int((ops.outcome == code).sum()) * ops.every for code in (OK, FAIL, INFO)]
    number = wording.count(records, "record")
    return Badge(
        "Acknowledged writes",
        number if sends == records else f"{wording.count(sends, 'send')} ({number})",
        f"Of {wording.count(len(ops) * ops.every, 'operation')} {by[0]:,} ok, {by[1]:,} failed, "
        f"{by[2]:,} unknown.",
        "plain" if acked.any() else "unsure",
    )


def _gap(folder: RunFolder) -> Badge:
    found = folder.gaps
    if not found:
        return Badge("Longest gap", "–", "No write was acknowledged.", "unsure")
    worst = max(found.values(), key=lambda gap: gap.length_us)
    alone = worst.partition == "" or len(found) == 2
    whole = wording.span(found[""].length_us)
    together = "" if alone else f"; all partitions together at most {whole}"
    return Badge(
        "Longest gap",
        wording.span(worst.length_us),
        f"{worst.partition or 'The cluster'} acknowledged nothing from "
        f"{folder.seconds(worst.start_us):.1f} s{together}.",
        "plain",
    )


def _baseline(folder: RunFolder) -> list[Badge]:
    """Return the badge of the nearest correct protocol under the schedule of a failure."""
    if folder.verdict is not Verdict.INVALID or not folder.can_have_baseline:
        return []
    pair = folder.baseline
    if pair is None or pair.baseline is None or pair.as_it_is is None:
        return [Badge("Baseline run", "not run", "See 'Minimal reproduction'.", "plain")]
    both = not pair.baseline.broken and pair.as_it_is.verdict == "invalid"
    tone: Tone = "good" if both else "unsure"
    kept = not pair.baseline.broken and pair.baseline.verdict in ("valid", "not-exercised")
    outcome = " keeps the record" if kept else f": {pair.baseline.verdict}"
    return [Badge("Baseline run", pair.baseline.name + outcome, pair.says("invalid"), tone)]


def _again(folder: RunFolder) -> list[Badge]:
    """Whether a simulated run came out the same when it was made again; only when that is known."""
    if folder.baseline is None or folder.baseline.same_again is None:
        return []
    if folder.baseline.same_again:
        detail = "A second run gave the same operations, faults and traces, byte for byte."
        return [Badge("Deterministic", "yes", detail, "good")]
    given = "A second run gave other operations, faults or traces"
    return [Badge("Deterministic", "no", f"{given}: other code, or a bug of the simulator.", "bad")]


def facts(folder: RunFolder) -> list[tuple[str, str]]:
    """Return the run's identity: (name, value) pairs."""
    info, schedule = folder.info, folder.schedule
    made = _tested(folder)
    if not info.source:
        digest = info.schedule_digest or (schedule.digest() if schedule else "")
        made.append(("seed", "unknown" if info.seed is None else str(info.seed)))
        made.append(("schedule", digest or "unknown"))
    made.append(("duration", _duration(folder)))
    if schedule:
        made += _cluster(folder, schedule.cluster)
    if info.epoch_us > 0 and info.phases.start_us:
        # A number no calendar knows is left out.
        with contextlib.suppress(ValueError, OverflowError, OSError):
            started = info.epoch_us + (info.phases.start_us - info.monotonic_us)
            when = datetime.datetime.fromtimestamp(started / 1e6, tz=datetime.UTC)
            made.append(("started", when.strftime("%Y-%m-%d %H:%M:%S UTC")))
    return made


def _tested(folder: RunFolder) -> list[tuple[str, str]]:
    """Name the system under test: a protocol of ours, another system, or that of a history."""
    info, schedule = folder.info, folder.schedule
    if info.source:
        return [("history", _SOURCES.get(info.source, info.source))]
    if not info.system.simulated:
        system = f"{info.system.name} {info.system.version}".rstrip()
        settings = ", ".join(f"{k}={v}" for k, v in info.system.settings.items())
        told = [("settings", settings)] if settings else []
        return [("system", system), *told, *_disk(folder)]
    cluster = schedule.cluster if schedule else None
    bugs = info.bugs or (cluster.bugs if cluster else ())
    return [
        ("protocol", info.protocol or (cluster.protocol if cluster else "unknown")),
        ("bugs", ", ".join(bugs) or "none"),
        *_disk(folder),
    ]


def _disk(folder: RunFolder) -> list[tuple[str, str]]:
    """Return a sentence on disks that were chosen, with the write-back age of one in user space."""
    form, schedule = folder.info.system.disk, folder.schedule
    if form == "user-space" and schedule is not None:
        age_s = schedule.cluster.write_back_ms / 1000
        form += f" (written back as the storm begins and after {age_s:g} s)" if age_s else ""
    return [("disk", form)] if form not in ("", "journal") else []


def _cluster(folder: RunFolder, cluster: Cluster) -> list[tuple[str, str]]:
    """Describe the shape of the cluster; of another system only what our schedule decides."""
    partitions = wording.count(cluster.partitions, "partition")
    factor = f"factor {cluster.replication_factor}"
    if not folder.info.system.simulated:
        nodes = wording.count(cluster.brokers, "node")
        return [("cluster", f"{nodes}, {partitions}, {factor}")]
    brokers = wording.count(cluster.brokers, "broker")
    voters = wording.count(cluster.voters, "voter")
    return [
        ("cluster", f"{brokers}, {voters}, {partitions}"),
        ("replication", f"{factor}, min ISR {cluster.min_isr}, flush {cluster.flush}"),
    ]


def _ran(fact: dict[str, str]) -> str:
    named = ("bugs", "settings", "disk", "seed", "schedule")
    first = fact.get("system") or fact.get("history") or fact.get("protocol", "")
    words = [first, *(f"{n} {fact[n]}" for n in named if n in fact), fact["duration"]]
    return ", ".join(words)


def _duration(folder: RunFolder) -> str:
    p = folder.info.phases
    start = p.start_us or folder.zero_us
    end = p.end_us or folder.last_us
    if end <= start:
        return "nothing happened"
    whole = wording.span(end - start)
    if p.storm_us and p.heal_us:
        return f"{whole} (storm {wording.span(p.heal_us - p.storm_us)})"
    return whole


def commands(folder: RunFolder) -> list[ShownCommand]:
    """Return the commands that replay the run, judge it again and build this page again. A history
    that another tool recorded has no replay: only that tool can run it again."""
    where, program = shlex.quote(folder.folder), folder.program
    alien = folder.info.world == "simulated" or bool(folder.info.source)
    name = folder.info.system.name
    # Settings, links and disks are those of the folder.
    system = "" if folder.info.system.simulated else f"--system {shlex.quote(name)} "
    line = f"{program} run {system}--schedule {where}"
    made = (
        [] if alien or folder.schedule is None else [ShownCommand("run the same storm again", line)]
    )
    if folder.schedule is not None and folder.info.system.simulated:
        how = "run it again, the same step by step" if not made else "the same simulated, in steps"
        made.append(ShownCommand(how, f"{program} replay {where} --trace"))
    if folder.provenance is not None:
        shrunk = shlex.quote(f"{folder.folder}/finding")
        if folder.info.world != "simulated":
            made.append(
                ShownCommand("the shrunk schedule, simulated", f"{program} replay {shrunk}")
            )
        if folder.provenance.for_real:
            line = f"{program} replay {shrunk} --world real --times 10"
            made.append(ShownCommand("the shrunk schedule, real", line))
    elif folder.schedule is not None and folder.verdict == "invalid" and not folder.info.source:
        made.append(ShownCommand(SHRINKS, f"{program} shrink {where}"))
    return [
        *made,
        ShownCommand("judge what was recorded again", f"{program} check {where}"),
        ShownCommand("build this page again", f"{program} report {where}"),
    ]


def properties(folder: RunFolder) -> list[PropertyResult]:
    """Return the results of the properties, worst first and otherwise in the checker's order."""
    found = folder.result.properties if folder.result else ()
    return sorted(found, key=lambda p: SEVERITY.index(p.verdict))


def summary(run_dir: Path, program: str = PROGRAM, result: RunResult | None = None) -> str:
    """Return about ten lines: verdict, sentence, settings, findings, how to run it again. `result`:
    the verdict on the run, None for the one in its folder.

    Raises ReportError when the folder holds nothing of a run."""
    folder = read(Path(run_dir), program)
    folder = replace(folder, result=result or folder.result)
    fact = dict(facts(folder))
    by_name = {badge.name: badge for badge in badges(folder)}
    lines = [
        f"{theme.MARKS[folder.verdict]} {folder.verdict.upper()}  {folder.name}",
        f"  {sentence(folder)}",
        f"  run         {_ran(fact)}",
    ]
    for name, label in (
        ("Acknowledged writes", "acked"),
        ("Faults took effect", "faults"),
        ("Longest gap", "gap"),
        ("Harness", "harness"),
    ):
        if (badge := by_name.get(name)) is not None:
            most = 160 if badge.tone != "bad" else 600
            lines.append(f"  {label:<11} {badge.value}. {wording.clip(badge.detail, most)}")
    lines.append(f"  properties  {_properties_line(folder)}")
    for anomaly in folder.anomalies[:3]:
        allowed = " (allowed)" if anomaly.verdict is Verdict.VALID else ""
        where = f" in {anomaly.partition}" if anomaly.partition else ""
        text = f"{anomaly.name}{where} × {anomaly.count:,}{allowed}"
        lines.append(f"  finding     {text}: {wording.clip(anomaly.message, 160)}")
    if len(folder.anomalies) > 3:
        more = wording.count(len(folder.anomalies) - 3, "more kind")
        lines.append(f"              and {more} of findings")
    if not folder.info.source:
        lines.append(f"  replay      {commands(folder)[0].line}")
    lines += [f"  shrink      {each.line}" for each in commands(folder) if each.does == SHRINKS]
    return "\n".join(line.replace("\n", " ") for line in lines)


def _properties_line(folder: RunFolder) -> str:
    found = properties(folder)
    if not found:
        return "none judged"
    by = {v: [p.property for p in found if p.verdict is v] for v in Verdict}
    parts = [f"{len(by[Verdict.VALID])} of {len(found)} valid"]
    parts += [
        f"{verdict}: {wording.listing(by[verdict], 6)}"
        for verdict in SEVERITY
        if by[verdict] and verdict is not Verdict.VALID
    ]
    return "; ".join(parts)
