"""`floodmark bisect`: in which version of a system a failure began, or was fixed."""

from __future__ import annotations

from harness.cli.common import print_json
from harness.search.requests import BisectRequest


def bisect(request: BisectRequest) -> int:
    """Find the version since which a schedule fails.

    Or the one since which it no longer fails. A run that fails proves that its version is bad; one
    that does not proves little. So versions run again until one answer has a probability of 95 %.
    The same command goes on from the runs that were made. Exit code: 0 with such an answer,
    else 2."""
    from harness.cli.common import tell
    from harness.runs.interrupts import Interrupts
    from harness.search.bisect import SURE
    from harness.search.bisect import bisect as search

    with Interrupts() as interrupts:
        say = tell if request.json or request.quiet else print
        result = search(request, interrupts, say)
    if request.json:
        print_json(result)
    return 0 if result.probability >= SURE else 2
