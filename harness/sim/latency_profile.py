"""The latencies of processes and of the harness in a simulated world.

In `IDEAL`, for searches, a process listens soon after its start, and a fault follows its trigger at
once. A schedule for real processes, which are slower, is first tried under the other profiles."""

from __future__ import annotations

from typing import Final, NamedTuple


class LatencyProfile(NamedTuple):
    """Ranges of latencies in microseconds. A run draws from them uniformly by its seed (`turn_us`
    excepted). `boot_us`: from the start of a process until it listens; messages that arrive earlier
    are lost. `notice_us`: from an event until the harness notices it; (0, 0) is at once. `turn_us`:
    from the begin of a node's turn until its messages leave and the next turn may begin; most turns
    take little more than the minimum."""

    boot_us: tuple[int, int]
    notice_us: tuple[int, int]
    turn_us: tuple[int, int] = (0, 0)


IDEAL: Final = LatencyProfile(boot_us=(20_000, 20_000), notice_us=(0, 0))
IDLE_HOST: Final = LatencyProfile(
    boot_us=(100_000, 500_000), notice_us=(500, 8_000), turn_us=(0, 5_000)
)
"""Python processes on a host without other load."""
BUSY_HOST: Final = LatencyProfile(boot_us=(300_000, 2_000_000), notice_us=(1_000, 30_000))
"""Python processes on a host with other load."""
OVERLOADED_HOST: Final = LatencyProfile(
    boot_us=(500_000, 3_000_000), notice_us=(5_000, 80_000), turn_us=(500, 120_000)
)
"""Python processes on a host with far more load than cores."""
