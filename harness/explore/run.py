"""An exploration as a command makes it: explore, and write the path to a violation as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.explore.bounds import Bounds, ExploreRequest
from harness.explore.explorer import Counterexample, Exploration, Explorer
from harness.explore.model import Model
from harness.explore.to_run import files_of
from harness.search.worlds.subject import Stop, never
from harness.sim import compiled
from node.formats.errors import UsageError
from node.formats.files import as_part, make_folder, write_whole
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable, read_file

FOLDER: Final = "explored"
"""The folder of a store that keeps what explorations found."""
FILE: Final = "counterexample.json"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """`counterexample.json`: the bounds of an exploration, and the path that it found."""

    bounds: Bounds
    found: Counterexample


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """An exploration, None if a path was followed again, and the run of its counterexample: its
    folder, the verdict of the checker as a sentence, and the broken properties."""

    result: Exploration | None = None
    found: Counterexample | None = None
    folder: str = ""
    sentence: str = ""
    broken: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code: 1 for a violation, 0 for none within the bounds, 2 if stopped."""
        if self.found is not None:
            return 1
        return 0 if self.result is not None and self.result.outcome == "none" else 2


def explore(
    request: ExploreRequest, *, stop: Stop = never, tell: Callable[[str], None] = lambda line: None
) -> Explored:
    """Explore, and write the path to a violation as a run folder. Lines on the progress go to a
    function. Raises UsageError under compiled code, StorageError."""
    if compiled.in_use():
        raise UsageError(
            f"an exploration cannot step compiled code; set {compiled.PURE}=1 in the environment"
        )
    if request.replay is not None:
        return _repeated(request.replay)
    explorer = Explorer(request.bounds)
    result = explorer.run(request.budget_s, request.memory, stop=stop, tell=tell)
    if not result.counterexamples:
        return Explored(result=result)
    # Those of one length differ in what they break.
    wanted = (c for c in result.counterexamples if request.breaks in ("", c.property))
    found = next(wanted, result.counterexamples[0])
    path = _folder(request, found)
    write_whole(path / FILE, msgspec.json.encode(Saved(bounds=request.bounds, found=found)))
    return msgspec.structs.replace(_written(explorer.model, found, path), result=result)


def _folder(request: ExploreRequest, found: Counterexample) -> Path:
    """Make the run folder of a counterexample. Raises StorageError."""
    subject = "-".join((request.bounds.protocol, *request.bounds.bugs))
    name = as_part(f"{subject}-{found.invariant}-{found.counted}")
    return make_folder(request.store / FOLDER / name, request.store)


def _written(model: Model, found: Counterexample, path: Path) -> Explored:
    """Write a path as a run, and judge it. Raises StorageError."""
    checked = files_of(model, found.actions, path.name).check(path)
    return Explored(
        found=found,
        folder=str(path),
        sentence=checked.sentence,
        broken=tuple(dict.fromkeys((found.property, *checked.broken))),
    )


def _repeated(path: Path) -> Explored:
    """Follow the path of a run folder again. Raises UsageError if it is none, or leads to no
    violation."""
    try:
        saved = read_file(path / FILE, Saved)
    except (OSError, Unreadable) as error:
        raise UsageError(f"{path}: not a folder that `explore` wrote: {reason(error)}") from None
    actions = tuple(map(_as_action, saved.found.actions))
    model = Model(saved.bounds.checked())
    if not model.violates(actions):
        raise UsageError(f"{path}: with this source the path leads to no violation")
    return _written(model, msgspec.structs.replace(saved.found, actions=actions), path)


def _as_action(value: Any) -> Any:
    """Return an action that JSON has as lists."""
    return tuple(map(_as_action, value)) if isinstance(value, list) else value


REDUCTIONS: Final = (
    "messages arrive in the order in which they were sent, but those that are delayed",
    "a wait ends only when no message is under way; a long one (session, lag, election) only for "
    "somebody silent, when no shorter wait changes anything",
    "an action on a node comes just before a step of that node, or at rest; processes start, links "
    "fail and commands are given at rest",
    "waits that change nothing are interrupted only by records and by faults of messages",
    "fields of a node that decide nothing have one value, and messages that nobody will hear are "
    "no part of a state",
    "a state that can do no more than a known one is not followed",
    "nodes and states count as one when their canonical values have the same hash of 128 bits",
)
"""Assumptions of every exploration; docs/explore.md has the reasons."""

_ENDED: Final = {
    "none": "none within the bounds",
    "time": "open at the time bound",
    "memory": "open at the memory bound",
    "stopped": "open: stopped",
}
_SHOWN: Final = {"kill": 2, "release": 1}
"""How many words of such an action say something to a person."""


def lines(result: Exploration, first: Counterexample | None) -> Iterator[str]:
    """Yield the lines that tell a person the result, with the path to a violation."""
    yield result.bounds.words()
    yield (
        f"{result.states:,} states, {result.edges:,} transitions, {result.nodes:,} states of nodes "
        f"({result.steps:,} steps); {result.rounds} actions deep, {result.depth} steps between two"
    )
    yield (
        f"{result.cpu_s:.1f} s of processor time, {result.wall_s:.1f} s, {result.memory_mb:,} MiB; "
        f"digest {result.digest}"
    )
    yield from (f"reduced: {words}" for words in REDUCTIONS)
    if first is not None:
        yield f"violated: {first.invariant} ({first.property}): {first.sentence}"
        yield from (
            f"  {number}. {words}"
            for number, words in enumerate(sentences(result.bounds, first), 1)
        )
    else:
        yield f"counterexample: {_ENDED[result.outcome]}"


def sentences(bounds: Bounds, found: Counterexample) -> Iterator[str]:
    """Yield the actions of a counterexample, a line each; forced steps in a row share one."""
    names = (*bounds.cluster().voter_names(), *bounds.cluster().broker_names())
    steps = 0
    for action in found.actions:
        if action[0] == "step":
            steps += 1
            continue
        if steps:
            yield f"{steps} more {'step' if steps == 1 else 'steps'} without a choice"
            steps = 0
        yield _words(names, action)


def _words(names: tuple[str, ...], about: Any) -> str:
    """Return an action as its kind and what it is about: `expire n2 fetch/log-0`."""
    if not isinstance(about, tuple | list):
        return names[about] if isinstance(about, int) else str(about)
    return " ".join(_words(names, each) for each in about[: _SHOWN.get(about[0])])
