"""Limits that a user sets on the availability of a run: `--max-gap` and `--p99`.

They are no part of the verdict, which is about what a system promises; they change the exit code of
a valid run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from checker.formats.verdict import RunResult, Verdict
from harness.formats.options import WEEK_S

EXIT_OVER: Final = 1


class GivenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The longest time without an acknowledgement, and the longest 99th percentile of the latency
    of acknowledged sends, in seconds; None: no limit."""

    max_gap_s: (
        Annotated[float, Meta(gt=0, le=WEEK_S, extra={"unit": "s", "option": "max-gap"})] | None
    ) = None
    """Exit with 1 if nothing was acknowledged for longer, such as 5s."""
    p99_s: Annotated[float, Meta(gt=0, le=WEEK_S, extra={"unit": "s", "option": "p99"})] | None = (
        None
    )
    """Exit with 1 if more than one of a hundred acknowledged sends took longer, such as 200ms."""

    def broken_by(self, result: RunResult) -> list[str]:
        """Return a sentence for each limit that a valid run exceeds, or that cannot be checked
        because nothing was measured. Other runs have failed already."""
        return list(self._broken(result)) if result.verdict is Verdict.VALID else []

    def _broken(self, result: RunResult) -> Iterator[str]:
        latency = result.measures.get("latency_ms", {}).get("send", {})
        measured = (
            ("--max-gap", self.max_gap_s, result.measures.get("longest_gap_ms"), "longest gap"),
            ("--p99", self.p99_s, latency.get("p99"), "99th percentile of the latency of sends"),
        )
        for option, limit_s, found_ms, what in measured:
            if limit_s is None:
                continue
            if found_ms is None:
                yield f"the {what} was not measured, so {option} cannot be checked"
            elif found_ms > limit_s * 1000:
                yield f"the {what} was {found_ms:g} ms, and {option} allows {limit_s * 1000:g} ms"
