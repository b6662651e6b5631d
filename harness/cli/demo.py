"""`floodmark demo`: a lost write, its page and the repaired protocol, in about a minute."""

from __future__ import annotations

from harness.search.requests import DemoRequest


def demo(request: DemoRequest) -> int:
    """Lose a write of an old Kafka, and keep it with the repair.

    Searches the old protocol, builds the page of what was found, and runs the same faults under the
    repaired protocol. Exit code: 0 when the search lost the write and the repaired protocol
    keeps it, else 1."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.demo import demo as show

    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        return 0 if show(request, interrupts, progress, print) else 1
