"""The run's own record: its problems, versions, host and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from reports import wording
from reports.evidence.model import RawFile, RunFolder

MOST_FILES: Final = 80
MOST_PROBLEMS: Final = 50


@dataclass(frozen=True)
class Environment:
    """The section's data; `more_files` counts the files that are not listed."""

    problems: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    files: tuple[RawFile, ...]
    more_files: int


def environment(folder: RunFolder) -> Environment:
    return Environment(
        problems=tuple(wording.clip(p) for p in folder.problems[:MOST_PROBLEMS]),
        facts=tuple(_facts(folder)),
        files=folder.files[:MOST_FILES],
        more_files=max(0, len(folder.files) - MOST_FILES),
    )


def _facts(folder: RunFolder) -> list[tuple[str, str]]:
    """Versions, host, promise and what else the run recorded about itself."""
    info = folder.info

    def pairs(values: dict[str, object]) -> str:
        return wording.clip(_plain(values)[1:-1], 600)

    made = [
        ("versions", pairs(info.versions)),
        ("host", pairs(info.host)),
        ("promise", pairs(msgspec.structs.asdict(info.promise))),
        ("world", info.world),
        ("capabilities", wording.listing(info.capabilities)),
        ("state", info.state),
        ("command", wording.clip(" ".join(info.command), 600)),
        ("measures", pairs(folder.result.measures) if folder.result else ""),
    ]
    return [(name, value) for name, value in made if value]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict):
        return f"({', '.join(f'{name} {_plain(each)}' for name, each in value.items())})"
    return ", ".join(map(_plain, value)) if isinstance(value, list | tuple) else "none"
