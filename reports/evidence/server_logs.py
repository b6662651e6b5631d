"""The lines that the servers printed about a failure, on the axis of the run.

`output/NODE.txt` has what a node's processes printed. Its times are a wall clock, in a form and a
time zone of the server's own; `run.json` says how the wall clock and the run's clock agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from checker.ingest.lines import read_lines
from node.formats.errors import FloodmarkError
from reports import wording
from reports.evidence.model import RunFolder

NEAR_US: Final = 2_000_000
MOST_LINES: Final = 60
FIRST_LINES: Final = 8
MOST_READ: Final = 200_000
"""Lines of one node; the rest of a longer file is not looked at."""
_WITHIN: Final = 120
"""Characters at the start of a line, among which its time is looked for."""
_RARE: Final = 3
_ZONE_US: Final = 900_000_000
_TIME: Final = re.compile(
    r"(?:(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)"
    r"|(?P<day_>\d\d) (?P<month_>[A-Z][a-z]{2}) (?P<year_>\d{4}))"
    r"[T ](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_TELLING: Final = re.compile(r"error|fatal|panic|truncat|leader|epoch|elect|fail", re.IGNORECASE)
_CHANGING: Final = re.compile(r"[\d.]+")


class Printed(NamedTuple):
    """A line that a server printed, `times` times but for numbers, and here as near to the failure
    as it came. `clock` is its time of day as the server wrote it, and `t_us` that time on the run's
    clock, as exact as it was written."""

    node: str
    t_us: int
    clock: str
    text: str
    times: int = 1


class ServerLogs(NamedTuple):
    """The lines to show: those nearest to what happened, then the others, each in order of time."""

    first: Sequence[Printed]
    rest: Sequence[Printed]


def server_logs(folder: RunFolder) -> ServerLogs | None:
    """Return the lines within 2 s of the cause and of the loss, and those before that tell of
    errors, leaders and epochs. None if nothing broke, or no server printed such a line."""
    moments = _moments(folder)
    if not moments or folder.info.world == "simulated":
        return None
    found: list[Printed] = []
    for node in (*folder.info.brokers, *folder.info.voters):
        found += _alike(_printed(folder, node), moments)
    found.sort(key=lambda line: _rank(line, moments))
    if len(found) > MOST_LINES:
        folder.notes.add(f"Of {len(found):,} lines of the servers the nearest {MOST_LINES} show.")
    parts = (found[:FIRST_LINES], found[FIRST_LINES:MOST_LINES])
    first, rest = (sorted(part, key=lambda line: line.t_us) for part in parts)
    return ServerLogs(first, rest) if first else None


def _moments(folder: RunFolder) -> list[int]:
    finding, cause = folder.first_finding, folder.cause
    found = [cause.t_us] if cause is not None else []
    if finding is not None:
        found.append(finding.t_us if finding.t_us >= 0 else folder.last_us)
    return found


def _alike(lines: Iterable[Printed], moments: Sequence[int]) -> Iterator[Printed]:
    """Yield one line for all lines of a node that differ only in numbers, if one of them
    matters."""
    shapes: dict[str, Printed] = {}
    for line in lines:
        shape = _CHANGING.sub("", line.text)
        known = shapes.get(shape, line)
        nearest = min(known, line, key=lambda each: _distance_us(each, moments))
        shapes[shape] = nearest._replace(times=known.times + (known is not line))
    for line in shapes.values():
        is_near = _distance_us(line, moments) <= NEAR_US
        if is_near or (line.t_us <= max(moments) and _TELLING.search(line.text)):
            yield line


def _distance_us(line: Printed, moments: Sequence[int]) -> int:
    return min(abs(line.t_us - moment) for moment in moments)


def _rank(line: Printed, moments: Sequence[int]) -> tuple[bool, bool, int]:
    """Put what tells of errors and leaders before other lines, and what is rare before what is
    repeated, for a server that says the same many times says nothing about this failure."""
    return not _TELLING.search(line.text), line.times > _RARE, _distance_us(line, moments)


def _printed(folder: RunFolder, node: str) -> Iterator[Printed]:
    """Yield the lines of a node; one without a time has that of the line before it."""
    info, file = folder.info, folder.path / "output" / f"{node}.txt"
    zone_us: int | None = None
    t_us, clock = info.phases.start_us, ""
    try:
        for number, line in enumerate(read_lines(file)):
            text = line.data.decode("utf-8", "replace").strip()
            if number == MOST_READ:
                folder.notes.add(f"{file.name} is read to line {MOST_READ:,}.")
                return
            found = _TIME.search(text, 0, _WITHIN)
            if found and (stamp_us := _wall_us(found)):
                if zone_us is None:  # The process had just been started.
                    zone_us = round((stamp_us - info.epoch_us) / _ZONE_US) * _ZONE_US
                t_us = stamp_us - zone_us - info.epoch_us + info.monotonic_us
                clock = found["clock"]
            if text:
                yield Printed(node, t_us, clock, wording.clip(text, 400))
    except FileNotFoundError:
        return
    except (OSError, FloodmarkError) as error:
        folder.notes.add(f"output/{file.name} cannot be read: {error}.")


def _wall_us(found: re.Match[str]) -> int:
    """Return the time of a line as microseconds since 1970, as if it were UTC; 0 if it is none."""
    month = found["month"] or f"{_MONTHS.find(found['month_']) // 4 + 1:02}"
    date = f"{found['year'] or found['year_']}-{month}-{found['day'] or found['day_']}"
    try:
        at = datetime.fromisoformat(f"{date}T{found['clock'].replace(',', '.')[:15]}+00:00")
    except ValueError:
        return 0
    return round(at.timestamp() * 1e6)
