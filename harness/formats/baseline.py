"""`baseline.json`: the result of running the schedule of a failing run again, as it is and on a
configuration that should hold."""

from __future__ import annotations

from typing import Final

import msgspec

from node.formats.bounds import Number

FILE: Final = "baseline.json"


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs of a baseline. `broken` are the properties that it broke."""

    protocol: str
    bugs: tuple[str, ...] = ()
    verdict: str
    sentence: str
    broken: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The protocol and the bugs that are on, joined by " + "."""
        return " + ".join((self.protocol, *self.bugs))


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """Two simulated runs of one schedule: `as_it_is`, and `baseline` under the nearest correct
    protocol. `schedule` is the digest of the schedule. `same_again`: whether the first run left
    byte for byte the files of the failing run, None if that one was not simulated. `problem` says
    why the runs could not be made, "" if they were."""

    schedule: str = ""
    seed: int = 0
    as_it_is: Side | None = None
    baseline: Side | None = None
    same_again: bool | None = None
    problem: str = ""
    format: Number = 1

    def says(self, verdict: str) -> str:
        """Say in a sentence what two runs prove; `verdict` is that of the run on the page."""
        if self.as_it_is is None or self.baseline is None:
            return f"It could not be made: {self.problem or 'no reason is given'}."
        fails, holds = self.as_it_is, self.baseline
        if fails.verdict == "invalid" and holds.verdict == "valid":
            return (
                f"The schedule breaks {fails.name} and does not break {holds.name}: what differs "
                "between the two is to blame."
            )
        if fails.verdict == "invalid" and not holds.broken and holds.verdict == "not-exercised":
            return (
                f"{holds.name} keeps the record: the schedule breaks {fails.name} and breaks "
                f"nothing under {holds.name}. It is too short to prove more than that."
            )
        if holds.verdict == "invalid":
            return (
                f"The schedule breaks {holds.name} too, which is expected to hold: look at the "
                "harness, the checker, or a bug that both have."
            )
        if verdict == "invalid" and fails.verdict != "invalid":
            return (
                f"In the simulated world {fails.name} does not fail under this schedule either: "
                "the failure depends on the timing of real processes, and this pair proves nothing."
            )
        return f"{fails.name} is {fails.verdict}, {holds.name} is {holds.verdict}."
