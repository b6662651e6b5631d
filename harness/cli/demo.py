"""`floodmark demo`: a lost write, its page and the repaired protocol, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from harness.cli.common import Cores, Quiet, results_in, worker_count


def demo(
    store: Annotated[Path, results_in("they", "findings/")] = Path("store"),
    cores: Cores = 0,
    quiet: Quiet = False,
) -> int:
    """Lose a write of an old Kafka, show how, and run the repaired protocol beside it.

    Exit code: 0 when the search lost the write and the repaired protocol keeps it, else 1.
    """
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.demo import demo as show

    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        lost_and_kept = show(store, worker_count(cores), interrupts, progress, print)
    return 0 if lost_and_kept else 1
