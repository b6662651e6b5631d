"""The run's own record: its problems, versions, host and files."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harness.formats.run_info import RunInfo
from reports import wording
from reports.evidence.model import RunFolder


def facts(folder: RunFolder) -> list[tuple[str, str]]:
    """Return the recorded settings of the run: (name, value) pairs."""
    info, measures = folder.info, folder.result.measures if folder.result else {}
    # The others are in results.json.
    figures = {name: value for name, value in measures.items() if isinstance(value, int | float)}

    def pairs(values: Mapping[str, object]) -> str:
        return wording.clip(_plain(values)[1:-1], 600)

    made = [
        ("versions", pairs(info.versions)),
        ("host", pairs(info.host)),
        ("promise", pairs(msgspec.structs.asdict(info.promise))),
        ("world", info.world),
        ("capabilities", wording.listing(info.capabilities)),
        ("state", info.state),
        ("command", wording.clip(" ".join(info.command), 600)),
        ("times", "" if info.system.simulated else _times(info)),
        ("measures", pairs(figures)),
    ]
    return [(name, value) for name, value in made if value]


def _times(info: RunInfo) -> str:
    start = wording.span(info.phases.storm_us - info.phases.start_us)
    return f"start {start}; failover with a restart at most {wording.span(info.failover_ms * 1000)}"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict):
        return f"({', '.join(f'{name} {_plain(each)}' for name, each in value.items())})"
    return ", ".join(map(_plain, value)) if isinstance(value, list | tuple) else "none"
