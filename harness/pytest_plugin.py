"""Storms inside a user's own test suite: the fixture `floodmark_storm` of pytest.

pytest loads this module at its start, by the entry point `floodmark`, in every environment that has
floodmark installed. So it imports only pytest before a storm begins. docs/pytest.md shows how to
use it."""

from __future__ import annotations

import inspect
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from checker.formats.verdict import RunResult

_SEEDS: Final = 1 << 31
_NOT_IN_A_SCHEDULE: Final = ("system", "settings", "links", "disk")
_SEED: Final = pytest.StashKey[int]()


class StormReport(NamedTuple):
    """The result of a storm: its verdict ("valid", "invalid", "unknown", "not-exercised") and the
    sentence that explains it, its seed, the run folder, its page (None: it could not be built), and
    the command line that runs the same schedule again."""

    verdict: str
    sentence: str
    seed: int
    folder: Path
    page: Path | None
    replay: str
    result: RunResult

    def __str__(self) -> str:
        """Return the text that a failed test shows."""
        return (
            f"floodmark: {self.sentence}\n"
            f"  page    {self.page or self.folder}\n"
            f"  replay  {self.replay}\n"
            f"  seed    {self.seed} (--floodmark-seed {self.seed})"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--floodmark-seed` and `--floodmark-store`."""
    group = parser.getgroup("floodmark", "storms of floodmark")
    group.addoption(
        "--floodmark-seed",
        type=int,
        metavar="N",
        help="Seed of all storms that have none of their own [default: random].",
    )
    group.addoption(
        "--floodmark-store",
        type=Path,
        metavar="FOLDER",
        help="Folder for the run folders of storms [default: a temporary folder of pytest].",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw one seed for the whole session, so that `--floodmark-seed` repeats all its storms."""
    given = config.getoption("--floodmark-seed")
    if given is not None and not 0 <= given < _SEEDS:
        raise pytest.UsageError(f"--floodmark-seed is {given}, but must be from 0 to {_SEEDS - 1}")
    drawn = random.SystemRandom().randrange(_SEEDS)
    config.stash[_SEED] = drawn if given is None else given


@pytest.fixture
def floodmark_storm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., StormReport]:
    """Run a storm against a system and fails the test unless it is valid.

    `floodmark_storm(system, *, settings=None, schedule=None, check=True, links=None, **options)`:
    `system` is a name of `floodmark systems`, "file.py:Class", "module:Class", or an `Adapter`
    class that a module has at its top. `settings` are those of `--set`. `schedule` is a file, a
    run folder or the name of a ready-made schedule; without it a storm is drawn, after those of the
    findings in the store that a search of the system has saved. `options` are
    those of `floodmark run`, with underscores: `faults` ("kill,pause", or a sequence), `time_limit`
    (seconds), `brokers`, `partitions`, `replication_factor`, `clients`, `consumers`, `rate`,
    `batch`, `acks`, `seed` and the like; a valid storm fails too if it exceeds `max_gap_s` or
    `p99_s`. With `check=False` nothing fails, and the report says how it went. Seed, verdict, run
    folder, page and replay line become properties of the test in a JUnit file. A test must call it
    in the main thread.
    """

    def storm(
        system: str | type,
        *,
        check: bool = True,
        faults: str | Sequence[str] | None = None,
        settings: Mapping[str, str] | None = None,
        schedule: str | Path | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> StormReport:
        given = request.config.getoption("--floodmark-seed")
        if seed is None:
            seed = given if schedule is not None else request.config.stash[_SEED]
        from harness.runs.requests import GivenLimits

        names = set(GivenLimits.__struct_fields__) & options.keys()
        limits = GivenLimits(**{name: options.pop(name) for name in names})
        wanted = {
            "system": _place_of(system),
            "settings": dict(settings or {}),
            "schedule": None if schedule is None else Path(schedule),
            "faults": faults if faults is None or isinstance(faults, str) else ",".join(faults),
            "seed": seed,
            **options,
        }
        store = request.config.getoption("--floodmark-store")
        store = tmp_path_factory.mktemp("floodmark") if store is None else store.absolute()
        kept = {name: wanted[name] for name in _NOT_IN_A_SCHEDULE if name in wanted}
        saved = (kept | {"schedule": path, "seed": given} for path in _saved(wanted, store))
        for each in (*saved, wanted):
            report = _storm(each, store, request.node.nodeid)
            if report.verdict == "invalid":
                break
        broken = limits.broken_by(report.result)
        for name in ("seed", "verdict", "folder", "page", "replay"):
            value = getattr(report, name)
            # `record_property` would warn about one of the dialects of JUnit files.
            text = "" if value is None else str(value)
            request.node.user_properties.append((f"floodmark_{name}", text))
        if check and (report.verdict != "valid" or broken):
            pytest.fail("\n".join([*broken, str(report)]), pytrace=False)
        return report

    return storm


def _place_of(system: str | type) -> str:
    """Return the name by which every process of a run finds a system."""
    if isinstance(system, str):
        return system
    if "." in system.__qualname__:
        pytest.fail(
            f"floodmark: {system.__qualname__} must stand at the top of a module, "
            "where other processes find it",
            pytrace=False,
        )
    module = system.__module__
    importable = "." in module and find_spec(module) is not None
    place = module if importable else inspect.getfile(system)
    return f"{place}:{system.__name__}"


def _saved(wanted: Mapping[str, Any], store: Path) -> list[Path]:
    """Return the folders of what searches of the system have saved in the store; none if the storm
    has a schedule, or the system cannot be found, which the storm says in a sentence."""
    if wanted["schedule"] is not None or not (store / "findings").is_dir():
        return []
    from harness.search.findings import folder_of
    from harness.search.run import saved_findings
    from harness.systems import registry
    from node.formats.errors import FloodmarkError

    try:
        system = registry.find(wanted["system"], wanted["settings"])
    except FloodmarkError:
        return []
    return [folder_of(store, finding) for finding in saved_findings(system, store)]


def _storm(wanted: Mapping[str, Any], store: Path, test: str) -> StormReport:
    """Run and judge it. What cannot be run fails the test in one sentence."""
    from harness.runs.interrupts import StopNow
    from harness.runs.requests import RunRequest
    from node.formats.errors import FloodmarkError

    try:
        request = RunRequest(**wanted)
    except TypeError as error:
        raise TypeError(f"floodmark_storm: {error}") from None
    try:
        return _run(request, store, test)
    except StopNow:
        raise KeyboardInterrupt from None
    except FloodmarkError as error:
        sentence = str(error)
    # Outside of the handler, so that pytest does not tell the sentence twice.
    pytest.fail(f"floodmark: {sentence}", pytrace=False)


def _run(request: Any, store: Path, test: str) -> StormReport:
    from harness.replay.pages import page_after
    from harness.runs.options import default_name, requested
    from harness.runs.run import RunOrder, run_once
    from harness.systems.external.links import KERNEL_LINKS
    from nemesis.links import namespaces

    schedule, on = requested(request)
    if on.links == KERNEL_LINKS and not namespaces.inside():
        return _in_namespaces(request, store, test)
    name = default_name(schedule)
    order = RunOrder(schedule, on, name, store, command=("pytest", test), source=request.schedule)
    outcome = run_once(order)
    if outcome.interrupted:
        raise KeyboardInterrupt
    page = page_after(outcome.folder, lambda sentence: None, baseline_too=False)
    return StormReport(
        verdict=outcome.result.verdict.value,
        sentence=outcome.result.sentence,
        seed=schedule.workload.seed,
        folder=outcome.folder,
        page=page,
        replay=outcome.info.replay,
        result=outcome.result,
    )


_INSIDE: Final = "from harness.pytest_plugin import storm_inside; storm_inside()"


def _in_namespaces(request: Any, store: Path, test: str) -> StormReport:
    """Run it in a process that has namespaces of its own, as the kernel's links need. Raises
    FloodmarkError."""
    from harness.systems.external import launcher
    from nemesis.links import namespaces
    from node.formats.errors import FloodmarkError

    command, environment = namespaces.own([sys.executable, "-c", _INSIDE])
    done = subprocess.run(
        [*launcher.starter(), *command],
        input=pickle.dumps((request, store, test)),
        stdout=subprocess.PIPE,
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if done.returncode:
        raise FloodmarkError(f"the storm's process ended with code {done.returncode}")
    answered = pickle.loads(done.stdout)
    if isinstance(answered, str):
        raise FloodmarkError(answered)
    report: StormReport = answered
    return report


def storm_inside() -> None:
    """Run the storm that stdin has; write its report, or the sentence of an error, to stdout."""
    from node.formats.errors import FloodmarkError

    request, store, test = pickle.load(sys.stdin.buffer)
    # What else is printed must not come between.
    answer, sys.stdout = sys.stdout, sys.stderr
    try:
        report: StormReport | str = _run(request, store, test)
    except FloodmarkError as error:
        report = str(error)
    answer.buffer.write(pickle.dumps(report))
