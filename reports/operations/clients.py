"""The operation timeline: a row for each client. Operations that failed, have no known outcome or
are witnesses of a finding are drawn one by one."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from reports import svg, wording
from reports.evidence.model import RunFolder
from reports.evidence.operations import FAIL, INFO, OK, Operations
from reports.svg import Panel, TrackRow

ROW_HEIGHT: Final = 14
MOST_ROWS: Final = 32
MOST_TITLED: Final = 3_000
MOST_ODD_TITLED: Final = 500
MOST_RINGS: Final = 300
MERGE_GAP: Final = svg.UNITS // svg.BINS

Ints = npt.NDArray[np.int64]


def witness_rows(folder: RunFolder) -> dict[int, str]:
    """Return the rows of `operations` that are witnesses of anomalies, each with the numbers of
    these anomalies as a text."""
    wanted: dict[int, list[str]] = {}
    for number, anomaly in enumerate(folder.anomalies, 1):
        for witness in anomaly.witnesses:
            if witness.op in wanted or (witness.op >= 0 and len(wanted) < MOST_RINGS):
                name = f"{number} ({wording.clip(anomaly.name, 60)})"
                wanted.setdefault(witness.op, []).append(name)
    if not wanted:
        return {}
    rows = np.flatnonzero(np.isin(folder.operations.op, list(wanted)))
    ops = folder.operations.op
    names = {op: wording.listing(dict.fromkeys(of), 4) for op, of in wanted.items()}
    return {int(row): f"witness of finding {names[int(ops[row])]}" for row in rows}


def witnesses_in(folder: RunFolder, axis: svg.Axis) -> dict[int, str]:
    """Return the part of `witness_rows` whose operations are in the window of the axis."""
    if not len(folder.operations):
        return {}
    visible = _visible(folder, axis)
    return {row: text for row, text in witness_rows(folder).items() if visible[row]}


def _visible(folder: RunFolder, axis: svg.Axis) -> npt.NDArray[np.bool_]:
    return (_ends(folder) >= axis.start_us) & (folder.operations.invoked_us <= axis.end_us)


def panel(folder: RunFolder, axis: svg.Axis, anchored: Container[int]) -> Panel:
    """Draw a row for each client; witnesses whose rows are in `anchored` get ids to link to."""
    ops = folder.operations
    if not len(ops):
        return Panel("Operations", (), note="No operation was recorded.")
    ends = _ends(folder)
    shown = np.flatnonzero(_visible(folder, axis))
    witnesses = witnesses_in(folder, axis)
    titled = len(shown) <= MOST_TITLED
    if not titled:
        folder.notes.add(
            f"Operations drawn by client are merged where they touch ({len(shown):,} in one view); "
            "failed, unknown and witness operations are drawn all the same."
        )
    rows = []
    groups = _groups(folder, shown, witnesses)
    budget = max(20, MOST_ODD_TITLED // max(1, len(groups)))
    for label, hint, members in groups:
        inside = shown[np.isin(ops.client[shown], members)]
        body = _row(ops, inside, ends, axis, titled, budget)
        body += _rings(ops, inside, witnesses, axis, anchored)
        rows.append(TrackRow(label, body, ROW_HEIGHT, "client", hint))
    kinds = [name for name in ("producer", "consumer") if any(g[1] == name for g in groups)]
    note = "producers first, then consumers" if len(kinds) == 2 else ""
    return Panel("Operations by client", tuple(rows), _legend(bool(witnesses)), note)


def _ends(folder: RunFolder) -> Ints:
    """Return when each operation ended; one that never did is drawn for the client's timeout."""
    ops = folder.operations
    timeout = folder.schedule.workload.timeout_ms * 1000 if folder.schedule else 3_000_000
    guess = np.minimum(ops.invoked_us + timeout, max(folder.last_us, ops.last_us()))
    return np.where(ops.completed_us >= 0, ops.completed_us, guess)


def _groups(
    folder: RunFolder, shown: Ints, witnesses: dict[int, str]
) -> list[tuple[str, str, list[int]]]:
    """(label, hint, client codes) of each row; the least eventful of many clients share one."""
    ops = folder.operations
    roles = folder.info.clients
    present = [int(c) for c in np.unique(ops.client[shown])]

    def order(code: int) -> tuple[bool, bool, int, str]:
        name = ops.clients[code]
        role = roles.get(name, "")
        return (role != "producer", role != "consumer", *wording.by_number(name)[1:])

    if len(present) > MOST_ROWS:
        odd = np.bincount(ops.client[shown][ops.outcome[shown] != OK], minlength=len(ops.clients))
        rank = {code: int(odd[code]) for code in present}
        for row in witnesses:
            rank[int(ops.client[row])] += 1_000_000
        kept = sorted(present, key=lambda code: -rank[code])[: MOST_ROWS - 1]
    else:
        kept = present
    made = [
        (ops.clients[code], roles.get(ops.clients[code], "client"), [code])
        for code in sorted(kept, key=order)
    ]
    rest = [code for code in present if code not in set(kept)]
    if rest:
        made.append((f"+{len(rest)}", f"{len(rest)} more clients with fewer findings", rest))
        folder.notes.add(
            f"{len(rest)} of {len(present)} clients share the last operation row: "
            "those with witnesses and with most failed or unknown operations have their own."
        )
    return made


def _row(
    ops: Operations, rows: Ints, ends: Ints, axis: svg.Axis, titled: bool, budget: int
) -> Markup:
    x0, x1 = axis.units(ops.invoked_us[rows]), axis.units(ends[rows])
    outcome = ops.outcome[rows]
    body: list[Markup] = []
    ok = np.flatnonzero(outcome == OK)
    if titled:
        body += [
            svg.path(
                "ok",
                svg.bars(x0[i : i + 1], x1[i : i + 1], 7),
                ops.title(int(rows[i]), axis.zero_us),
            )
            for i in ok
        ]
    else:
        low, high = svg.merge(x0[ok], x1[ok], MERGE_GAP)
        body.append(svg.path("ok", svg.bars(low, high, 7)))
    info, fail = np.flatnonzero(outcome == INFO), np.flatnonzero(outcome == FAIL)
    low, high = svg.merge(x0[info], x1[info], -1 if len(info) <= budget else MERGE_GAP)
    body.append(svg.path("info", svg.bars(low, high, 3) + svg.bars(low, high, 11)))
    body.append(svg.path("fail", svg.ticks(x0[fail] // 4 * 4, 1.5, 11)))
    other = np.sort(np.concatenate((info, fail)))
    for i in other[
        np.unique(np.linspace(0, len(other) - 1, min(len(other), budget)).astype(np.int64))
    ]:
        hit = svg.bars(x0[i : i + 1], np.maximum(x1[i : i + 1], x0[i : i + 1] + 30), 7)
        body.append(svg.path("hit", hit, ops.title(int(rows[i]), axis.zero_us)))
    return svg.drawing(body, ROW_HEIGHT)


def _rings(
    ops: Operations, rows: Ints, witnesses: dict[int, str], axis: svg.Axis, anchored: Container[int]
) -> Markup:
    """Draw rings around witness operations, with anchors and a sentence on each operation."""
    made = []
    for row in rows.tolist():
        if row not in witnesses:
            continue
        title = f"{ops.title(row, axis.zero_us)}; {witnesses[row]}"
        name = {"id": f"op-{ops.op[row]}"} if row in anchored else {}
        place = axis.place(int(max(ops.completed_us[row], ops.invoked_us[row])))
        text = Markup('<span class="sr">{}</span>').format(title)
        made.append(svg.element("a", "ring", place, text, title=title, href="#findings", **name))
    return Markup("").join(made)


def _legend(witnesses: bool) -> Markup:
    items = [
        '<li><i class="key line ok"></i>ok</li>',
        '<li><i class="key tick fail"></i>fail: certainly not done</li>',
        '<li><i class="key box info"></i>info: outcome unknown</li>',
    ]
    if witnesses:
        items.append('<li><i class="key ring"></i>witness of a finding</li>')
    return Markup("".join(items))
