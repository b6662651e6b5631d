"""`floodmark nightly`: search, known bugs, storms and replays within a budget of time."""

from __future__ import annotations

from harness.nightly.requests import NightlyRequest


def nightly(request: NightlyRequest) -> int:
    """Search, storm and replay within a budget of time.

    Continues a nightly run that was stopped. Exit code: 0 when nothing is wrong; 1 when a protocol
    broke what it should hold, the canary did not fail, or a run was not deterministic; 2 when it
    was stopped; 70 when disk or harness ended it."""
    from harness.nightly.main import run_nightly
    from harness.nightly.plan import fitted

    return run_nightly(fitted(request))
