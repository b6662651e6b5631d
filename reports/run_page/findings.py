"""The findings: every anomaly with its witnesses, and links to other parts of the page about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from checker.formats.verdict import Anomaly, Witness
from harness.formats.history import show_value
from reports import wording
from reports.evidence import citations
from reports.evidence.model import RunFolder
from reports.evidence.traces import FileLine
from reports.log.grid import Grid, grids
from reports.operations.clients import witnesses_in
from reports.run_page.time_view import windows

MOST_FINDINGS: Final = 60
MOST_WITNESSES: Final = 32
FINDINGS_IN_FULL: Final = 10
FIRST_WITNESSES: Final = 6
"""Of the first finding, shown at once; the others unfold."""


WitnessRow = dict[str, Any]
"""One witness as texts by column, "" if it says nothing; `link` leads to its operation."""


class Column(NamedTuple):
    """One column of a witness table; columns without any value are left out."""

    field: str
    title: str
    number: bool = False


COLUMNS: Final = (
    Column("what", "witness"),
    Column("at", "time, s", True),
    Column("op", "operation"),
    Column("client", "client / process"),
    Column("node", "node"),
    Column("offset", "offset", True),
    Column("value", "value", True),
    Column("epoch", "epoch", True),
    Column("citations", "in the files"),
)


@dataclass(frozen=True)
class PageFinding:
    """An anomaly for the template: `more` witnesses are left out, `grid` is its grid's number."""

    number: int
    anomaly: Anomaly
    message: str
    when: str
    witnesses: tuple[WitnessRow, ...]
    more: int
    grid: int
    columns: tuple[Column, ...] = ()

    @property
    def first(self) -> tuple[WitnessRow, ...]:
        """The witnesses that show at once."""
        return self.witnesses[: FIRST_WITNESSES if self.number == 1 else 0]

    @property
    def rest(self) -> tuple[WitnessRow, ...]:
        """The witnesses that show after a click."""
        return self.witnesses[len(self.first) :]


def findings(folder: RunFolder) -> list[PageFinding]:
    """Return the first findings, as many as the page shows; a note says if there are more."""
    most = MOST_FINDINGS // 6 if folder.lean else MOST_FINDINGS
    shown = folder.anomalies[:most]
    if len(folder.anomalies) > most:
        folder.notes.add(
            f"{len(folder.anomalies):,} findings; the {most} that matter most are shown, "
            "all are in results.json."
        )
    made_grids = grids(folder)
    shown_rows = {row for axis in windows(folder).values() for row in witnesses_in(folder, axis)}
    recorded = {int(folder.operations.op[row]) for row in shown_rows}
    cited = citations.of_witnesses(
        folder, [(a.partition, w) for a in shown for w in a.witnesses[:MOST_WITNESSES]]
    )
    return [
        _finding(folder, number, anomaly, made_grids, recorded, cited)
        for number, anomaly in enumerate(shown, 1)
    ]


def _finding(
    folder: RunFolder,
    number: int,
    anomaly: Anomaly,
    made_grids: list[Grid],
    recorded: set[int],
    cited: dict[Witness, tuple[FileLine, ...]],
) -> PageFinding:
    # The first few findings in full; of later ones enough to see what they are.
    most = MOST_WITNESSES if number <= FINDINGS_IN_FULL else MOST_WITNESSES // 6
    shown = tuple(_witness(folder, w, recorded, cited.get(w, ())) for w in anomaly.witnesses[:most])
    at = anomaly.offset
    number_of_grid = next(
        (
            i
            for i, g in enumerate(made_grids, 1)
            if g.partition == anomaly.partition and (at < 0 or g.offsets[0] <= at <= g.offsets[-1])
        ),
        0,
    )
    return PageFinding(
        number=number,
        anomaly=anomaly,
        message=wording.clip(anomaly.message),
        when=f"{folder.seconds(anomaly.t_us):.3f} s" if anomaly.t_us >= 0 else "",
        witnesses=shown,
        more=len(anomaly.witnesses) - len(shown),
        grid=number_of_grid,
        columns=tuple(c for c in COLUMNS if any(w[c.field] for w in shown)),
    )


def _witness(
    folder: RunFolder, w: Witness, recorded: set[int], lines: tuple[FileLine, ...]
) -> WitnessRow:
    client = w.client + (f" / {w.process}" if w.process >= 0 else "")
    return {
        "what": wording.clip(w.what, 300),
        "client": wording.clip(client, 60),
        "node": wording.clip(w.node, 60),
        "at": f"{folder.seconds(w.t_us):.3f}" if w.t_us >= 0 else "",
        "op": f"#{w.op}" if w.op >= 0 else "",
        "offset": f"{w.offset:,}" if w.offset >= 0 else "",
        "value": show_value(w.value) if w.value >= 0 else "",
        "epoch": str(w.epoch) if w.epoch >= 0 else "",
        "link": f"op-{w.op}" if w.op in recorded else "",
        "citations": lines,
    }
