"""The files that judging a run leaves: `results.json`, and measures, curves and findings as tables.
Each file is written whole or not at all."""

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
from checker.output.assemble import RunFindings, assemble
from checker.output.curves import curve_tables, curves_in_short
from node.formats.files import write_whole


@dataclass(frozen=True)
class RunOutput:
    """The result of a run, and its tables of curves and findings by name."""

    result: RunResult
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the tables to `folder`. Raises OSError."""
        for name, table in self.tables.items():
            tables.write(folder, name, "", table)


def conclude(
    run: RunFindings,
    origins: Mapping[int, Origin],
    counted: measures.Measured | None,
    injected: Sequence[InjectedFault],
) -> RunOutput:
    """Make the result and the tables of one run from its findings and counts. If nothing was
    `counted`, there are no tables, and of the measures only the number of faults."""
    if counted is None:
        return RunOutput(assemble(run, origins, {"faults": len(run.faults)}))
    made = {
        **curve_tables(run.meta, run.curves),
        "around_faults": measures.around_faults(run.meta, counted, injected),
    }
    summary = {
        **measures.summary(run.meta, counted, len(run.faults)),
        **curves_in_short(made),
        "around_faults": measures.around_faults_in_short(made["around_faults"]),
    }
    result = assemble(run, origins, summary)
    return RunOutput(result, {**made, **finding_tables(result)})


def finding_tables(result: RunResult) -> dict[str, pa.Table]:
    """Return the tables `anomalies` and `properties` of a result."""
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
    row = {**msgspec.structs.asdict(anomaly), "run": run, "verdict": str(anomaly.verdict)}
    row["witnesses"] = [msgspec.structs.asdict(w) for w in anomaly.witnesses]
    return tuple(row[name] for name in tables.SCHEMAS["anomalies"].names)


def write_results(folder: Path, result: RunResult) -> None:
    """Write `results.json` to `folder`. Raises StorageError."""
    made = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_whole(folder / "results.json", made + b"\n")
