"""The files that a check of one run leaves beside its evidence: `results.json`, and measures,
curves and findings as tables. Each file is written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from checker.checks.findings import Origin
from checker.formats.verdict import Anomaly, RunResult
from checker.ingest import tables
from checker.ingest.fault_windows import InjectedFault
from checker.output import measures
from checker.output.around_faults import around_faults, in_short
from checker.output.assemble import Collected, assemble
from checker.output.curve_tables import curve_tables, curves_in_short
from node.formats.files import write_whole


@dataclass(frozen=True)
class Concluded:
    """The result of a run, and the small tables that belong to it."""

    result: RunResult
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the tables under `folder`. Raises OSError."""
        for name, table in self.tables.items():
            tables.write(folder, name, "", table)


def conclude(
    run: Collected,
    origins: Mapping[int, Origin],
    counted: measures.Measured | None,
    injected: Sequence[InjectedFault],
) -> Concluded:
    """Conclude one run from all that was found and counted; if nothing was counted, without tables
    and measures but the number of faults."""
    if counted is None:
        return Concluded(assemble(run, origins, {"faults": run.faults}))
    made = {
        **measures.measure_tables(run.meta, counted),
        **curve_tables(run.meta, run.curves),
        "around_faults": around_faults(run.meta, counted, injected),
    }
    summary = {
        **measures.summary(run.meta, counted, run.faults),
        **curves_in_short(made),
        "around_faults": in_short(made["around_faults"]),
    }
    result = assemble(run, origins, summary)
    return Concluded(result, {**made, **finding_tables(result)})


def finding_tables(result: RunResult) -> dict[str, pa.Table]:
    """Return the findings of a run, and what became of each property."""
    return {
        "anomalies": tables.from_rows(
            "anomalies", (_row(anomaly, result.run) for anomaly in result.anomalies)
        ),
        "properties": tables.from_rows(
            "properties",
            (
                (result.run, p.property, str(p.verdict), p.examined, p.reason)
                for p in result.properties
            ),
        ),
    }


def _row(anomaly: Anomaly, run: str) -> tuple[Any, ...]:
    """Return an anomaly in the order of its table."""
    row = {**msgspec.structs.asdict(anomaly), "run": run, "verdict": str(anomaly.verdict)}
    row["witnesses"] = [msgspec.structs.asdict(w) for w in anomaly.witnesses]
    return tuple(row[name] for name in tables.SCHEMAS["anomalies"].names)


def write_results(folder: Path, result: RunResult) -> None:
    """Write a run's result, in a folder that is made if need be. Raises OSError, StorageError."""
    folder.mkdir(parents=True, exist_ok=True)
    made = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_whole(folder / "results.json", made + b"\n")
