"""The files that judging a run leaves: `results.json`, and measures and curves as tables.
Each file is written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa

from checker.checks.findings import Origin
from checker.formats.verdict import RunResult
from checker.ingest import tables
from checker.ingest.fault_windows import InjectedFault
from checker.output import measures
from checker.output.assemble import RunFindings, assemble
from checker.output.curves import curve_tables, curves_in_short
from node.formats.files import write_whole


@dataclass(frozen=True)
class RunOutput:
    """The result of a run, and its tables of curves and measures by name. `damaged`: its evidence
    is not as it was sealed."""

    result: RunResult
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    damaged: bool = False

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
    return RunOutput(result, made, run.damaged)


def write_results(folder: Path, result: RunResult) -> None:
    """Write `results.json` to `folder`. Raises StorageError."""
    made = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_whole(folder / "results.json", made + b"\n")
