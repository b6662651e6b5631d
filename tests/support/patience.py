"""Runs in which no limit of time decides: `python -m tests.support.patience [--played] run ...`.

Whether a cluster recovers in time is judged by the clock, and on a busy machine it does not, which
makes a run `unknown`. A phase ends when what it waits for has happened, so a far limit costs no
time. A storm that is `played` ends when its faults are over, however long it may last."""

from __future__ import annotations

import sys
from typing import Any, Final

import pytest

from harness.cli.main import main
from harness.runs import storm
from harness.systems.external.system import ExternalSystem
from harness.systems.floodmark.system import Floodmark
from tests.support.waiting import PATIENCE_S

PLAYED: Final = "--played"
LEAST_ACKED: Final = 60
"""What a storm without faults acknowledges at least: in fewer, the start of the clients is long."""


def patient(patch: pytest.MonkeyPatch, recovery_ms: int = round(PATIENCE_S * 1000)) -> None:
    """Let clusters of this process take so long to recover, and to answer the final reads."""
    for system in (Floodmark, ExternalSystem):

        def limits(self: Any, cluster: Any, usual: Any = system.limits) -> Any:
            return usual(self, cluster)._replace(recovery_ms=recovery_ms)

        patch.setattr(system, "limits", limits)
    patch.setattr(storm, "PATIENCE_S", PATIENCE_S)


def played(patch: pytest.MonkeyPatch) -> None:
    """Let storms of this process end when their faults are over, and as many records again are
    acknowledged: more than any of the faults can have taken, so no reader waits for lost ones."""

    def is_played(self: Any) -> bool:
        acked = self.clients.status.acked
        if not self.injector.exhausted:
            return False
        by_then = vars(self).setdefault("acked_by_then", acked)
        return bool(acked > max(2 * by_then, by_then + LEAST_ACKED))

    patch.setattr(storm.Storm, "_played", is_played)


def brief(patch: pytest.MonkeyPatch) -> None:
    """Let runs of this process go on as soon as they have recovered, and have read everything."""
    for name in ("LEAST_RECOVERY_S", "CATCH_UP_S"):
        patch.setattr(storm, name, 0.0)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patched:
        patient(patched)
        if PLAYED in sys.argv:
            sys.argv.remove(PLAYED)
            played(patched)
        main()
