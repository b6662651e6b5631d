"""Text of numbers, times and faults, as the page and the terminal say them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection
from pathlib import Path

from checker.formats.verdict import Verdict
from nemesis.faults import kind_of
from nemesis.faults.words import conditions, nth
from nemesis.faults.words import listing as listing
from nemesis.faults.words import target as target
from nemesis.formats.schedule import After, Fault

LONGEST_TEXT = 1200


def clip(text: object, limit: int = LONGEST_TEXT) -> str:
    """Return at most `limit` characters of `text`, with an ellipsis if some were cut."""
    whole = str(text)
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"


def bare(sentence: str, names: Collection[str] = ()) -> str:
    """Return the sentence of a verdict without its first word, the verdict itself. `names` are
    names of nodes and partitions."""
    verdict, _, rest = sentence.partition(": ")
    if not rest or verdict not in set(Verdict):
        return sentence
    # The name of a node, a partition or a file keeps its small letter.
    first = rest.split(maxsplit=1)[0].rstrip(".:,")
    is_name = first in names or any(c.isdigit() or c in "./" for c in first)
    return rest if is_name else rest[:1].upper() + rest[1:]


def by_number(name: str) -> tuple[str, int, str]:
    """Return a sort key for names: by their first letter, then by number (c2 before c10)."""
    digits = "".join(c for c in name if c.isdecimal())[:9]
    return (name[:1], int(digits or 0), name)


def count(number: int, noun: str = "", plural: str = "") -> str:
    """Format a number, `1,234`, or with a noun, `1 batch`, `1,234 batches` (`plural` if not s)."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def span(us: float) -> str:
    """Return a length of time at a readable precision: `312 ms`, `3.21 s`, `2 min 5 s`."""
    if us < 0:
        return "-" + span(-us)
    if us < 1_000:
        return f"{us:.0f} µs"
    if us < 100_000:
        return f"{us / 1e3:.1f} ms"
    if us < 999_500:
        return f"{us / 1e3:.0f} ms"
    if us < 119_950_000:
        return f"{us / 1e6:.2f} s" if us < 9_995_000 else f"{us / 1e6:.1f} s"
    minutes, seconds = divmod(round(us / 1e6), 60)
    if minutes < 120:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def size(count: int) -> str:
    """Return a file size for a person: `512 B`, `37 kB`, `1.2 MB`."""
    if count < 1_000:
        return f"{count} B"
    return f"{count / 1e3:.0f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def intent(fault: Fault) -> str:
    """Return the words for a fault of the schedule, without times: `Kill the leader of log-0`."""
    return kind_of(fault).words()


def asked(fault: Fault) -> str:
    """Return a text on when a fault of the schedule is due, and for how long."""
    if fault.after is not None:
        when = _trigger(fault.after)
    else:
        when = f"at {(fault.at_ms or 0) / 1000:.3f} s"
    if not kind_of(fault).lasts:
        return when
    if fault.for_ms is None:
        return f"{when}, until the final heal"
    return f"{when}, for {span(fault.for_ms * 1000)}"


def _trigger(after: After) -> str:
    fields = conditions(after.match)
    later = f" + {span(after.delay_ms * 1000)}" if after.delay_ms else ""
    matching = f" with {fields}" if fields else ""
    since = f" since fault '{after.since}'" if after.since else ""
    within = ""
    if after.within_ms is not None:
        within = f", after {span(after.within_ms * 1000)} at the latest"
    return f"after the {nth(after.nth)} '{after.event}' event{matching}{since}{later}{within}"


def place_of(path: Path) -> str:
    """Return the path of a folder from its last `store` on, or else its last two names."""
    parts = path.parts
    if "store" in parts:
        return "/".join(parts[len(parts) - 1 - parts[::-1].index("store") :])
    return "/".join(parts[-2:])


def folder_of(replay: str, run: str) -> str:
    """Return the folder that `--schedule` names in a replay command, else `store/` and the run."""
    try:
        parts = shlex.split(replay)
    except ValueError:
        parts = []
    if "--schedule" in parts[:-1]:
        return parts[parts.index("--schedule") + 1]
    return f"store/{run}"


def rate(count: int, of: int) -> str:
    """Return how often something happened, with the range in which its rate lies with 95 %
    confidence (the score interval of Wilson, 1927): `3 of 10 (95 %: 11 to 60 %)`."""
    if not of:
        return f"{count} of {of}"
    z, share = 1.96, count / of
    middle = share + z * z / (2 * of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + side * spread) / (1 + z * z / of) for side in (-1, 1))
    return f"{count} of {of} (95 %: {max(100 * low, 0.0):.0f} to {100 * high:.0f} %)"
