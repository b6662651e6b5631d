"""Moments of a trace that a schedule can wait for, and what faults met then: a stage of scripts.

`event append n2 10 leo=3` adds an event of n2 at 10 us about log-0, of a follower unless the script
says otherwise. A moment is shown as its time and what a fault would wait for."""

from __future__ import annotations

import json
from typing import Any

from harness.search.shrink.to_script import TriggerCandidate, leader_candidates, trigger_candidates
from harness.search.worlds.outcome import fault_coverage
from nemesis.formats.fault_log import Action, FaultLine
from nemesis.formats.schedule import After


class TriggersStage:
    """The events so far, of a storm that begins at `storm_us`."""

    def __init__(self, storm_us: int = 0) -> None:
        self._storm_us = storm_us
        self._events: list[dict[str, Any]] = []
        self._faults: list[FaultLine] = []

    def event(self, event: str, node: str, t_us: int, **fields: Any) -> None:
        about = {"partition": "log-0", "role": "follower", "incarnation": 1, "elr": []}
        fields |= {n: fields[n].split(",") for n in ("isr", "replicas") if n in fields}
        self._events.append({"t_us": t_us, "node": node, "event": event} | about | fields)

    def fault(self, t_us: int, what: str, action: Action, *nodes: str) -> None:
        self._faults.append(FaultLine(t_us=t_us, fault=0, what=what, action=action, nodes=nodes))

    def coverage(self) -> list[str]:
        """Return how often each fault met a role and an ISR."""
        found = fault_coverage(self._events, self._faults)
        return [f"{met}: {times}" for met, times in found.items()]

    def _found(self) -> list[TriggerCandidate]:
        return list(trigger_candidates(self._events, storm_us=self._storm_us))

    def moments(self) -> list[str]:
        return [_text(moment) for moment in self._found()]

    def of_leaders(self) -> list[str]:
        return [_text(moment) for moment in leader_candidates(self._found())]


def _text(moment: TriggerCandidate) -> str:
    return f"{moment.t_us} us: {_words(moment.after)}"


def _words(after: After) -> str:
    return f"{after.event} nth={after.nth} {json.dumps(after.match)}"
