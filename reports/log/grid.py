"""The offset grid: the values acknowledged to clients, held by replicas and seen by consumers.

Rows are the acknowledgements, the replicas and the reads; columns are offsets. The reference of a
column is the acknowledged value, else the value that most replicas hold; a replica that holds
anything else there is outlined. Equal neighbouring columns are not folded: a window is small."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from checker.formats.verdict import Verdict
from harness.formats.history import show_value
from reports import wording
from reports.evidence.model import RunFolder
from reports.evidence.operations import LogWindow, Seen
from reports.evidence.replicas import Head, Held
from reports.theme import EPOCH_COLOURS

LONGEST_VALUE: Final = 6
LONGEST_NAME: Final = 9


@dataclass(frozen=True)
class Cell:
    """One cell: the value as shown, its epoch (-1 none), CSS classes and the tooltip."""

    text: str = ""
    epoch: int = -1
    classes: str = "none"
    title: str = ""


@dataclass(frozen=True)
class GridLine:
    """One row of the grid; `hint` explains it, `kind` is acked, replica or read."""

    label: str
    kind: str
    cells: tuple[Cell, ...]
    hint: str = ""


@dataclass(frozen=True)
class Lineage:
    """The ends of a replica's log, its HW and epochs, and whether they differ from most."""

    head: Head
    epochs: str
    differs: bool


@dataclass(frozen=True)
class Grid:
    """One window of one partition's offsets, ready for the template."""

    partition: str
    title: str
    summary: str
    offsets: tuple[int, ...]
    marked: frozenset[int]
    lines: tuple[GridLine, ...]
    lineage: tuple[Lineage, ...]
    epochs: tuple[int, ...]
    window_low: int = 0


def grids(folder: RunFolder) -> list[Grid]:
    """Return a grid for each window of `folder.windows` in which anything is known."""
    return [made for window in folder.windows if (made := _grid(folder, window)) is not None]


def _grid(folder: RunFolder, window: LogWindow) -> Grid | None:
    heads = {head.node: head for head in folder.replicas.of(window.partition)}
    nodes = folder.info.partitions.get(window.partition, ()) or tuple(heads)
    held = {node: folder.held.get((window.partition, node), {}) for node in nodes}
    known = {o for cells in held.values() for o in cells} | window.acked.keys()
    known |= window.read.keys() | window.final.keys()
    known = {o for o in known if window.low <= o < window.high}
    if not known:
        return None
    offsets = tuple(range(max(window.low, min(known)), min(window.high, max(known) + 1)))
    wanted = {o: _reference(window, held, o) for o in offsets}
    in_logs = None
    if any(held.values()):
        in_logs = {o: {c.value for n in nodes if (c := held[n].get(o))} for o in offsets}
    expected = {o: {value} for o, value in wanted.items()}
    told = "acknowledged to a producer"
    lines = [_clients("acked", "acked", told, window.acked, offsets, in_logs)]
    epochs = {o: Counter(c.epoch for n in nodes if (c := held[n].get(o))) for o in offsets}
    usual = {o: counts.most_common(1)[0][0] if counts else -1 for o, counts in epochs.items()}
    lines += [
        _replica(node, heads.get(node), held[node], offsets, wanted, usual, window.acked)
        for node in nodes
    ]
    for label, hint, seen in (
        ("read", "read by a consumer during the storm", window.read),
        ("final", "read by a fresh consumer after the last heal", window.final),
    ):
        lines.append(_clients(label, "read", hint, seen, offsets, expected))
    shown = {c.epoch for cells in held.values() for o, c in cells.items() if o in wanted}
    marked = frozenset(
        a.offset
        for a in folder.anomalies
        if a.partition == window.partition and a.verdict is Verdict.INVALID
    )
    broken = [o for o in offsets if any("bad" in x.cells[o - offsets[0]].classes for x in lines)]
    return Grid(
        partition=window.partition,
        window_low=window.low,
        title=f"{window.partition}, offsets {offsets[0]:,}–{offsets[-1]:,}",
        summary=_summary(offsets, broken),
        offsets=offsets,
        marked=marked,
        lines=tuple(lines),
        lineage=lineage(list(heads.values())),
        epochs=tuple(sorted(shown)),
    )


def _summary(offsets: tuple[int, ...], broken: list[int]) -> str:
    if not broken:
        return "All replicas agree in this window, with each other and with what clients saw."
    if len(broken) == 1:
        return f"The outlined cells disagree at offset {broken[0]:,}."
    more = ", where the window ends" if broken[-1] == offsets[-1] else ""
    return (
        f"The outlined cells disagree at {wording.count(len(broken), 'offset')}, "
        f"from {broken[0]:,} to {broken[-1]:,}{more}."
    )


def _reference(window: LogWindow, held: dict[str, dict[int, Held]], offset: int) -> int | None:
    """Return the value that ought to be there: the acknowledged one, else that of most replicas."""
    acked = window.acked.get(offset, [])
    if len(acked) == 1:
        return acked[0].value
    values = [c.value for cells in held.values() if (c := cells.get(offset)) is not None]
    known = Counter(v for v in values if v is not None)
    return known.most_common(1)[0][0] if known else None


def _named(value: int | None) -> str:
    return "unreadable" if value is None else show_value(value)


def _short(value: int | None) -> str:
    """Shorten a value to a cell: "6:215" if it fits, else its last digits."""
    if value is None or value < 0:
        return "?"
    named = show_value(value)
    return named if len(named) <= LONGEST_NAME else f"…{str(value)[1 - LONGEST_VALUE :]}"


def _replica(
    node: str,
    head: Head | None,
    cells: dict[int, Held],
    offsets: tuple[int, ...],
    wanted: dict[int, int | None],
    usual: dict[int, int],
    acked: dict[int, list[Seen]],
) -> GridLine:
    """Make the row of one replica; hatched above its HW, outlined where it differs."""
    made = []
    for offset in offsets:
        cell = cells.get(offset)
        if cell is None:
            lacks = offset in acked and head is not None
            title = f"{node} holds nothing at offset {offset}"
            if lacks:
                title += ", where a write was acknowledged"
            made.append(Cell("–", -1, "lacks" if lacks else "none", title))
            continue
        value_differs = cell.value is not None and cell.value != wanted[offset]
        epoch_differs = cell.epoch != usual[offset]
        classes = [f"ep{max(0, cell.epoch) % EPOCH_COLOURS}"]
        above = head is not None and 0 <= head.hw <= offset
        if above:
            classes.append("above")
        if head is not None and head.hw == offset:
            classes.append("hw")
        if value_differs or epoch_differs:
            classes.append("bad")
        title = (
            f"{node}, offset {offset}: value {_named(cell.value)}, "
            f"epoch {cell.epoch}{f', prefix hash {cell.hash}' if cell.hash else ''}"
            f"{', above its high watermark' if above else ''}"
        )
        if value_differs:
            title += f"; expected value {_named(wanted[offset])}"
        elif epoch_differs:
            title += f"; most replicas have epoch {usual[offset]}"
        made.append(Cell(_short(cell.value), cell.epoch, " ".join(classes), title))
    hint = f"LEO {head.leo:,}, HW {head.hw:,}" if head else "no log was collected"
    return GridLine(node, "replica", tuple(made), hint)


def _clients(
    label: str,
    kind: str,
    hint: str,
    seen: dict[int, list[Seen]],
    offsets: tuple[int, ...],
    must_be: dict[int, set[int | None]] | None,
) -> GridLine:
    """Return a row of what clients saw; `must_be` has the values that are right at each offset."""
    made = []
    for offset in offsets:
        cell = seen.get(offset, [])
        if not cell:
            made.append(Cell("", -1, "none", f"offset {offset}: not {hint}"))
            continue
        values = [s.value for s in cell]
        bad = len(values) > 1 or values[0] < 0
        bad = bad or (must_be is not None and values[0] not in must_be[offset])
        title = f"offset {offset}: " + "; ".join(
            f"value {show_value(s.value)} {hint} ({s.client}, operation #{s.op})" for s in cell[:5]
        )
        text = " ".join(_short(value) for value in values[:2])
        text += f" +{len(values) - 2}" if len(values) > 2 else ""
        made.append(Cell(text, -1, f"{kind}{' bad' if bad else ''}", title))
    return GridLine(label, kind, tuple(made), hint)


def lineage(heads: list[Head]) -> tuple[Lineage, ...]:
    """Return each replica's epochs (epoch → start offset), marked if they differ from the
    majority's.

    Only offsets that all replicas have are compared; a log that is only shorter does not differ."""
    common_leo = min((head.leo for head in heads), default=0)
    shared = [tuple(e for e in head.epochs if e[1] < common_leo) for head in heads]
    usual = Counter(shared).most_common(1)
    made = []
    for head, epochs in zip(heads, shared, strict=True):
        pairs = [f"e{epoch} from {start:,}" for epoch, start in head.epochs]
        earlier = [f"{len(pairs) - 8} earlier"] if len(pairs) > 8 else []
        text = ", ".join([*earlier, *pairs[-8:]]) or "none"
        made.append(Lineage(head, text, epochs != usual[0][0]))
    return tuple(made)
