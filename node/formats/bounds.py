"""Bounds of the numbers in the files of a run, for the types of all formats.

A number from a file is used for arithmetic on 64-bit integers and to reserve memory, so each has a
range in its type, and a line with a number out of its range is refused by its reader."""

from __future__ import annotations

from typing import Annotated

import msgspec

MOST_TIME_US = 2**62

Time = Annotated[int, msgspec.Meta(ge=0, le=MOST_TIME_US)]
"""Microseconds of a monotonic clock, or since 1970."""
OptionalTime = Annotated[int, msgspec.Meta(ge=-1, le=MOST_TIME_US)]
"""The same, -1 where there is none."""
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Offset = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 2**33)]
"""An offset, LEO or HW, -1 where there is none. Offset and count together fit into 64 bits."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
"""Of records in a batch or a read: they are expanded, so that a count reserves memory."""
BatchCount = Annotated[int, msgspec.Meta(ge=0, le=2**17)]
"""Of the records that one line of a history says were sent, or read from one batch: some times the
most that a workload may have. One wrong bit must not make millions of records of a few."""
LargeCount = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Of things that were counted and are never expanded."""
Value = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**63 - 2**33)]
"""The value of a record; below 0 for a payload that could not be understood."""
Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""An index, epoch, term, process or exit code; below 0 where there is none."""
PartitionName = Annotated[str, msgspec.Meta(min_length=1)]
