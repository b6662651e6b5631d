"""How far a simulated world is from an ideal one: for what processes and harness take their time.

A search runs in `CALM`: a process listens soon after its start, and a fault strikes the moment
after the event it waits for. Real processes are slower and less even; a schedule that is to fail
there too is tried in `ROUGH` first.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Weather(NamedTuple):
    """Microseconds, at least and at most, evenly drawn from the seed of the run.

    `boot_us`: from the start of a process until it listens; what comes before is lost. `look_us`:
    how long the harness may take to notice an event; (0, 0) is at once.
    """

    boot_us: tuple[int, int]
    look_us: tuple[int, int]


CALM: Final = Weather(boot_us=(20_000, 20_000), look_us=(0, 0))
ROUGH: Final = Weather(boot_us=(300_000, 2_000_000), look_us=(1_000, 30_000))
"""Python processes on a machine that does something else besides."""
