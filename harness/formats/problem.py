"""Problems of a run that the system under test did not cause (`problems` of `run.json`), and every
end of a process of the system (`exits.jsonl`).

The verdict of a run with a problem is at best unknown. Most kinds may also have kept the clients or
the cluster from going on. Then the checker concludes nothing from an event that is missing.
"""

from __future__ import annotations

import signal
from typing import Final, Literal, get_args

import msgspec

from node.formats.bounds import Number, Time

ProblemKind = Literal[
    "hub-ended",
    "clients-ended",
    "disk-ended",
    "node-ended",
    "suspended",
    "interrupted",
    "disk-full",
    "disk-failed",
    "no-memory",
    "not-started",
    "phase-failed",
    "not-healed",
    "too-busy",
    "not-saved",
    "log-not-read",
]
KINDS: Final[tuple[ProblemKind, ...]] = get_args(ProblemKind)
"""The kinds, the gravest first: the sentence of a verdict names the first problem."""
_ONLY_FILES: Final = ("log-not-read", "not-saved")
_ONLY_TIME: Final = ("too-busy",)
_SELF_EXPLANATORY: Final = ("node-ended", "suspended", "interrupted")
_OWN_SIGNALS: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGPIPE,
        signal.SIGALRM,
    }
)
_ASKED_CODES: Final = frozenset(
    128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a run that the system under test did not cause. `kind` is one of the following.

    * `hub-ended`, `clients-ended`, `disk-ended`: a part of the harness ended, or cannot go on;
    * `node-ended`: a process of the system was ended by a signal that the harness did not send;
    * `suspended`: a process was stopped by a signal that the harness did not send (it goes on);
    * `interrupted`: Ctrl-C before storm and recovery were complete, or SIGTERM;
    * `disk-full`: the disk of the host was full;
    * `disk-failed`: the disk of the host was read-only, failed or was gone;
    * `no-memory`: the host refused more memory to a process of the run;
    * `not-started`, `phase-failed`, `not-healed`: the harness could not do its part;
    * `too-busy`: the cluster did not recover, or not give all final reads, in time, and its
      processes waited for a processor;
    * `not-saved`: a file of the run could not be written completely;
    * `log-not-read`: the log of a replica could not be read after the run.

    `sentence` describes it to a person.
    """

    kind: ProblemKind
    sentence: str

    @property
    def impairs(self) -> bool:
        """Return whether the problem may have kept the cluster or the clients from going on."""
        return self.kind not in _ONLY_FILES

    @property
    def breaks(self) -> bool:
        """Return whether the problem may have stopped a part of the cluster or the clients, not
        only delayed it."""
        return self.impairs and self.kind not in _ONLY_TIME

    @property
    def in_a_verdict(self) -> str:
        """The sentence in the form in which a verdict cites it."""
        if self.kind in _SELF_EXPLANATORY:
            return self.sentence
        return f"The harness had trouble: {self.sentence}"


def rank(problem: Problem) -> int:
    """Return a key that sorts problems by gravity, the gravest first."""
    return KINDS.index(problem.kind)


def node_ended(node: str, code: int | None) -> Problem:
    """Return the problem that a process of the system was ended from outside. `code` is its exit
    code as in `subprocess`, None if it is unknown."""
    return Problem(
        kind="node-ended",
        sentence=f"{node} was ended from outside ({how_ended(0 if code is None else code)}), "
        "which neither the schedule nor the harness did.",
    )


def suspended(who: str) -> Problem:
    """Return the problem that a process, such as a node or the hub, was stopped by SIGSTOP from
    outside."""
    return Problem(
        kind="suspended",
        sentence=f"{who} was suspended from outside (SIGSTOP), "
        "which neither the schedule nor the harness did.",
    )


def how_ended(code: int) -> str:
    """Return how a process with this exit code ended: "SIGKILL" for -9, or "exit code 3"."""
    number = -code if code < 0 else code - 128 if code in _ASKED_CODES else 0
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if code < 0 else f"exit code {code}"


def ended_from_outside(code: int) -> bool:
    """Return whether a process to which the harness sent no signal was ended by a signal from
    outside. `code` is its exit code. Signals that a process raises by its own fault (such as
    SIGSEGV) do not count. A shell or a JVM that a signal asked to end has 128 + its number as exit
    code."""
    if code < 0:
        return -code not in _OWN_SIGNALS
    return code in _ASKED_CODES


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a process of `node`. `code` is as in `subprocess` (negative: a signal), None if
    unknown. `by` says who ended it: a fault ("kill"), the harness ("stop"), a signal from outside
    ("outside"), or the process ("itself"). `expected`: whether the harness or a fault asked for it.
    The checker reports an end that is not expected, with the last output of the process (`said`).
    """

    node: str
    incarnation: Number = -1
    t_us: Time
    code: Number | None = None
    by: Literal["kill", "stop", "itself", "outside", ""] = ""
    expected: bool = False
    said: str | msgspec.UnsetType = msgspec.UNSET
