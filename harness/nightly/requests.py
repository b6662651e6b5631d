"""The request of a nightly run: the options of `floodmark nightly`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from harness.formats.options import (
    READABLE,
    WRITABLE_FILE,
    Budget,
    Consumers,
    Jobs,
    Json,
    Quiet,
    Store,
    worker_count,
)
from node.formats.errors import UsageError


class NightlyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a nightly run. `job_s` is the longest time of one search job, `job_schedules`
    its largest number of schedules (0: no such limit). `pages` is the largest number of findings
    that get a page. `storm_s` is the length of a storm, without start and recovery.
    `kept_per_class` is how many folders of real runs are kept for each class of failure, over all
    nightly runs."""

    budget_s: Annotated[Budget, Meta(gt=0)] = 1200.0
    store: Store = Path("store")
    """The store to continue."""
    number: Annotated[int, Meta(ge=0, le=1000000)] = 0
    """The number of the run, which decides its seeds; 0: the next."""
    fresh: bool = False
    """A new nightly run even if the last one is unfinished."""
    jobs: Jobs = 0
    real: bool = True
    """Simulated worlds only: no canary, no storms."""
    systems: str | None = None
    """Also storm these systems, a comma list; +name=value is a setting, as in
    nats,nats+server=old/nats-server: versions of a system are compared."""
    systems_only: str | None = None
    """As --systems, and leave out the broker of floodmark: after the canary, these systems get the
    whole budget."""
    accepted: Annotated[Path | None, Meta(extra=READABLE)] = None
    """File of the buckets that are known and do not make it red: the key of one a line, then
    anything."""
    consumers: Consumers = 1
    rows: bool = False
    """Also run what docs/systems says of third-party systems, row by row."""
    junit: Annotated[Path | None, Meta(extra=WRITABLE_FILE)] = None
    """File for JUnit XML [default: junit.xml in the store]."""
    quiet: Quiet = False
    json: Json = False
    job_s: float = 20.0
    job_schedules: int = 0
    shrink_tries: int = 400
    pages: int = 24
    known_bug_s: float = 60.0
    determinism_runs: int = 12
    storm_s: float = 10.0
    least_free_bytes: int = 512 << 20
    kept_per_class: int = 5
    systems_share: int = 20
    rows_share: int = 20

    def check(self) -> None:
        """Check the request. Raises UsageError for options that exclude each other."""
        if self.systems_only is not None and not (self.systems is None and self.real):
            other = "--systems" if self.real else "--no-real"
            raise UsageError(f"--systems-only and {other} exclude each other")

    @property
    def cores(self) -> int:
        """The number of jobs that run at the same time."""
        return worker_count(self.jobs)
