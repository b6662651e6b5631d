"""The timeouts of a cluster, in a schedule and in the configuration of each node."""

from __future__ import annotations

from typing import Annotated

import msgspec

from node.formats.wire_bounds import MAX_WAIT_MS

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)]


class Timings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All timeouts of a cluster, in milliseconds. The defaults are shorter than Kafka's, which
    would outlast a storm of 30 s."""

    heartbeat_ms: Milliseconds = 200
    session_ms: Milliseconds = 1500
    lag_ms: Milliseconds = 1000
    fetch_wait_ms: Milliseconds = 100
    fetch_timeout_ms: Milliseconds = 500
    retry_ms: Milliseconds = 50
    election_min_ms: Milliseconds = 300
    election_max_ms: Milliseconds = 600
    hw_checkpoint_ms: Milliseconds = 500
    idle_wait_ms: Milliseconds = 300
    leader_timeout_ms: Milliseconds = 1500
