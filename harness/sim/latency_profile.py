"""How far a simulated world is from an ideal one: for what processes and harness take their time.

A search runs in `CALM`: a process listens soon after its start, and a fault strikes the moment
after the event it waits for. Real processes are slower and less even; a schedule that is to fail
there too is tried in the others first.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Weather(NamedTuple):
    """Microseconds, at least and at most, drawn from the seed of the run, evenly but for turns.

    `boot_us`: from the start of a process until it listens; what comes before is lost. `look_us`:
    how long the harness may take to notice an event; (0, 0) is at once. `turn_us`: how long after
    a turn of a node its messages leave, and the next turn may begin; most turns are much nearer to
    the least than to the most.
    """

    boot_us: tuple[int, int]
    look_us: tuple[int, int]
    turn_us: tuple[int, int] = (0, 0)


CALM: Final = Weather(boot_us=(20_000, 20_000), look_us=(0, 0))
FAIR: Final = Weather(boot_us=(100_000, 500_000), look_us=(500, 8_000), turn_us=(0, 5_000))
"""Python processes on a machine that does nothing else."""
ROUGH: Final = Weather(boot_us=(300_000, 2_000_000), look_us=(1_000, 30_000))
"""Python processes on a machine that does something else besides."""
STORMY: Final = Weather(
    boot_us=(500_000, 3_000_000), look_us=(5_000, 80_000), turn_us=(500, 120_000)
)
"""Python processes on a machine with far more to do than it has cores."""
