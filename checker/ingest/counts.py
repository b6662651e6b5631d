"""Counts of a history, taken while it is read: all measures are made of them, and they stay small.

The table `tallies` counts operations that are alike: of the same kind and outcome, and of latencies
that differ by less than one in 128. The table `acks` has the first and
the last acknowledgement of each period in which there was any: the longest time without an
acknowledgement lies between two of these. Sends around faults are counted apart
(`checker.ingest.fault_windows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.sorting import I64
from checker.ingest import tables
from checker.ingest.fault_windows import InjectedFault
from checker.ingest.tables import Columns

PRECISION_BITS: Final = 7
RUN, PARTITION, AFTER = "run", "partition", "after"
SENT: Final = "sent"
"""All operations that sent something, with the records that they sent: transactions too."""
# Stretches of acknowledgements: of the whole run, and of each of its partitions.
STRETCH_US: Final = {RUN: 1_000, PARTITION: 100_000}


def coarse(latency_us: I64) -> I64:
    """Round latencies down by less than one in 128, so that a run has few different ones, however
    long it is. Latencies below 256 us stay exact, and so does -1 (unknown)."""
    bits = np.maximum(np.frexp(latency_us + 0.5)[1] - 1 - PRECISION_BITS, 0)
    made: I64 = (latency_us >> bits) << bits
    return made


def tallied(
    run: str, source: Mapping[str, Columns], injected: Sequence[InjectedFault] = ()
) -> dict[str, pa.Table]:
    """Count some rows of `ops` and `sends`: return tables `tallies` and `acks` (see the
    module). Sends are also counted before, during and after each fault of `injected` (`by` is the
    window, `nth` that of the fault), and `acks` also has the first acknowledgement of
    each partition after its end."""
    counted, acks = [], []
    for name, table in source.items():
        if not len(table["invoke_us"]):
            continue
        if name == "ops":
            counted.append(_count(run, RUN, _rows(table, table["sent"] + table["polled"]), ("f",)))
            wrote = _rows(table, table["sent"])
            wrote = wrote.filter(pc.greater(wrote["records"], 0))
            counted.append(_count(run, SENT, wrote, (), f="send"))
            acks.append(_acks(run, RUN, wrote))
        elif name == "sends":
            rows = _rows(table, table["count"])
            acks.append(_acks(run, PARTITION, rows, ("name",)))
            for fault in injected:
                acks.append(_first_after(run, rows, fault))
                counted += _around(run, rows, fault)
    made = {"tallies": concat(counted, "tallies"), "acks": concat(acks, "acks")}
    return {name: table for name, table in made.items() if table.num_rows}


def _rows(table: Columns, records: I64) -> pa.Table:
    """Return outcome and latency of some rows; `name` is their partition."""
    texts = {"f": "f", "partition": "name", "outcome": "outcome"}
    invoke_us, complete_us = table["invoke_us"], table["complete_us"]
    made: dict[str, Any] = {}
    for name in (name for name in texts if name in table):
        codes, words = table[name]
        made[texts[name]] = pa.DictionaryArray.from_arrays(codes.astype(np.int32), words)
    # An ok operation without both times has no latency, and counts as info.
    ok = pc.equal(made["outcome"], "ok").to_numpy(zero_copy_only=False)
    ok &= (complete_us >= 0) & (invoke_us >= 0)
    us = np.where(ok, coarse(complete_us - invoke_us), -1)
    numbers = {"invoke_us": invoke_us, "complete_us": complete_us, "us": us, "records": records}
    return pa.table({**made, **numbers, "times": np.ones(len(us), np.int64)})


def _count(
    run: str, by: str, rows: pa.Table, keys: Sequence[str], *, nth: int = -1, f: str = ""
) -> pa.Table:
    """Count the rows that are alike, and their records."""
    sums = [("times", "sum"), ("records", "sum")]
    found = rows.group_by([*keys, "outcome", "us"], use_threads=False).aggregate(sums)
    return _table("tallies", found, run=run, by=by, name="", nth=nth, f=f)


def _around(run: str, rows: pa.Table, fault: InjectedFault) -> Iterator[pa.Table]:
    """Count the sends invoked in the windows around a fault, of each partition and of all."""
    invoke_us = rows["invoke_us"].to_numpy()
    for window, begin_us, end_us in fault.windows():
        inside = rows.filter(pa.array((invoke_us >= begin_us) & (invoke_us < end_us)))
        for keys in (("name",), ()):
            yield _count(run, window, inside, keys, nth=fault.nth, f="send")


def _first_after(run: str, rows: pa.Table, fault: InjectedFault) -> pa.Table:
    """Return the first acknowledgement of each partition after a fault ended."""
    later = pc.and_(pc.greater_equal(rows["us"], 0), pc.greater(rows["complete_us"], fault.end_us))
    found = (
        rows.filter(later).group_by("name", use_threads=False).aggregate([("complete_us", "min")])
    )
    found = found.append_column("complete_us_max", found["complete_us_min"])
    return _table("acks", found, run=run, by=AFTER, stretch=fault.nth)


def _acks(run: str, by: str, rows: pa.Table, keys: Sequence[str] = ()) -> pa.Table:
    """Return the first and last acknowledgement in each period of `STRETCH_US[by]`."""
    acked = rows.filter(pc.greater_equal(rows["us"], 0))
    acked = acked.append_column("stretch", pc.divide(acked["complete_us"], STRETCH_US[by]))
    ends = [("complete_us", "min"), ("complete_us", "max")]
    found = acked.group_by([*keys, "stretch"], use_threads=False).aggregate(ends)
    return _table("acks", found, run=run, by=by, name="")


_AGGREGATES: Final = {
    "times": "times_sum",
    "records": "records_sum",
    "first_us": "complete_us_min",
    "last_us": "complete_us_max",
}


def _table(name: str, found: pa.Table, /, **others: object) -> pa.Table:
    """Return a table of the columns that were found, and others with one value in all rows."""
    schema, there, arrays = tables.SCHEMAS[name], set(found.schema.names), []
    for field in schema:
        column = _AGGREGATES.get(field.name, field.name)
        if column in there:
            arrays.append(found[column].cast(field.type))
        else:
            value = pa.scalar(others[field.name], field.type)
            arrays.append(pa.repeat(value, found.num_rows))
    return pa.Table.from_arrays(arrays, schema=schema)


def concat(parts: Iterable[pa.Table], name: str) -> pa.Table:
    """Join parts of the table `name`."""
    return pa.concat_tables([tables.SCHEMAS[name].empty_table(), *parts])
