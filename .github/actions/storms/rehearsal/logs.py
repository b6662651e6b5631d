"""Two small logs to rehearse the action with: one keeps what it acknowledged, one has a gap."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples" / "naive_log"))

from adapter import NaiveLog

from floodmark import Adapter, LogSlice


class Whole(NaiveLog):
    """The naive log of the tutorial; no node says who is in sync, so its storms are short."""

    probe = Adapter.probe


class Gap(Whole):
    """The same log, whose readers never get the record at offset 3."""

    def read(self, nodes, partition, offset, timeout_s):
        found = super().read(nodes, partition, offset, timeout_s)
        return LogSlice([each for each in found.records if each[0] != 3], found.end)
