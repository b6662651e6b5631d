"""The types of options that several commands share.

A request is the struct that a command gets. Each field with a description is an option of the
command line, or an argument if it has no default; `harness/cli/options.py` says how it is written.
The text below a field describes it, or else its `Meta`. That has the bounds, and in `extra` another
name of the option (`option`) or what a path must be (`path`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from node.formats.errors import UsageError

HOUR_S: Final = 3600
WEEK_S: Final = 7 * 24 * HOUR_S
MOST_BUDGET_S: Final = 1000 * HOUR_S

READABLE: Final = {"path": "readable"}
WRITABLE_FILE: Final = {"path": "writable file"}
WRITABLE_FOLDER: Final = {"path": "writable folder"}

Seed = Annotated[
    int, Meta(ge=-(2**62), le=2**62, description="The same seed tries the same schedules.")
]
"""A seed; the bounds are those of the files."""
Budget = Annotated[
    float,
    Meta(
        ge=0,
        le=MOST_BUDGET_S,
        description="How long it may take, such as 90s, 15m or 1h30m.",
        extra={"option": "budget", "written": "duration"},
    ),
]
"""Seconds, which a person writes as 90s, 15m or 1h30m."""
Consumers = Annotated[
    int,
    Meta(
        ge=0,
        le=1000,
        description="Of a system: how many clients read during a storm.",
        extra={"about": "real processes"},
    ),
]
Jobs = Annotated[
    int,
    Meta(
        ge=0,
        le=1024,
        description="Worker processes, or clusters side by side of a system; 0: one per core.",
    ),
]
"""The number of worker processes (see `worker_count`)."""
Store = Annotated[Path, Meta(description="Folder for results.", extra=WRITABLE_FOLDER)]
FindingsStore = Annotated[
    Store, Meta(description="Folder for results; findings go to its findings/.")
]
Page = Annotated[
    Path | None, Meta(description="File for the table as Markdown.", extra=WRITABLE_FILE)
]
Bugs = Annotated[
    tuple[str, ...],
    Meta(description="Turn on a known bug, by name or code; repeatable.", extra={"option": "bug"}),
]
OnlyBugs = Annotated[
    tuple[str, ...], Meta(description="Only this bug, by name or code; repeatable.")
]
SystemSettings = Annotated[
    dict[str, str],
    Meta(description="A setting of the system, name=value; repeatable.", extra={"option": "set"}),
]
SystemOfFolder = Annotated[
    str | None,
    Meta(
        description="System under test [default: that of the folder, if it is installed; any other "
        "one must be named here too, such as path/to/file.py:Class]."
    ),
]
"""The system of a run or finding, where a command repeats one."""
SparkMaster = Annotated[
    str,
    Meta(
        pattern=r"(local(\[(\d+|\*)(, *\d+)?\])?|(spark|k8s|mesos)://\S+|yarn)",
        extra={"such as": "spark://host:7077 or local[2]"},
    ),
]
Master = Annotated[
    SparkMaster | None, Meta(description="URL of a Spark cluster [default: Spark on this machine].")
]
OnSpark = Annotated[bool, Meta(description="Judge without Spark.")]
Quiet = Annotated[bool, Meta(description="Do not show progress.")]
Json = Annotated[bool, Meta(description="Print the result as JSON.")]


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a command that prints a list, as a table or (`json`) as JSON."""

    json: Json = False


def worker_count(jobs: int) -> int:
    """Return how many worker processes `--jobs` asks for; 0 means one per core of this machine."""
    return jobs or os.cpu_count() or 1


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """Return the settings of a command line as a dictionary; each is written name=value. Raises
    UsageError for another form, and for a name with two values."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--set is '{word}', but must be written name=value")
        if found.setdefault(name, value) != value:
            raise UsageError(f"--set gives {name} two different values; keep one of them")
    return found
