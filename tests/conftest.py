"""Fixtures that several test files share, and the rules of the tiers."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from node.formats.owned_folder import PREFIX, OwnedFolder, sweep
from tests.support.bare_machine import hide, noted, shown
from tests.support.snapshot import Snapshot, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests are about the sources, and some change what is in a module.
os.environ.setdefault("FLOODMARK_PURE", "1")

# The temporary folder of this process and of all that it starts. Those of pytest stay where they
# are.
_PLACE = OwnedFolder(Path(os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())))
os.environ["TMPDIR"] = tempfile.tempdir = str(_PLACE.path)

# Neither the collection of tests nor the first tier looks at what is installed.
hide()

# No test depends on how busy the machine is, and each tries the same examples each time.
# `make nightly-tests` draws others, and more of them.
settings.register_profile("floodmark", deadline=None, derandomize=True, database=None)
settings.register_profile("drawn", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile("floodmark")

LATER_TIERS = ("integration", "nightly")
"""The marks of the second and the third tier. A test without either is of the first."""
FIRST_TIER_CPU_S = 3.0
"""The processor seconds that one test of the first tier may take, its children included."""
SHARED_CORE = 2.0
"""How many times longer the same work takes on a core that others share: no failure below that."""


def processor_s() -> float:
    """Return the processor seconds of this process and of the children that it has reaped."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of the first tier that takes too many processor seconds: load is no failure."""
    before = processor_s()
    with noted() as used:
        yield
    if used and not later_tier(item):
        pytest.fail(f"a test of the first tier uses {used[0]}, which a bare machine may lack")
    took = processor_s() - before
    item.user_properties.append(("processor_s", took))
    if took > FIRST_TIER_CPU_S * SHARED_CORE and of_first_tier(item):
        pytest.fail(
            f"{item.nodeid} took {took:.1f} s of processor time, and a test of the first tier may "
            f"take {FIRST_TIER_CPU_S:g} s: make it cheaper, or mark it `integration` or `nightly`."
        )


def of_first_tier(item: pytest.Item) -> bool:
    """Return whether a test counts to the first tier, with the number of examples of that tier."""
    drawn = item.config.getoption("hypothesis_profile", None) == "drawn"
    return not drawn and not later_tier(item)


def later_tier(item: pytest.Item) -> bool:
    """Return whether a test is of a tier that may use tools of the machine."""
    return any(map(item.get_closest_marker, LATER_TIERS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests of `--durations` by processor seconds too."""
    wanted = terminalreporter.config.getoption("durations") or 0
    passed = terminalreporter.getreports("passed")
    taken = sorted((dict(each.user_properties)["processor_s"], each.nodeid) for each in passed)
    for took, nodeid in taken[: -wanted - 1 : -1]:
        terminalreporter.line(f"{took:.2f} processor s {nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Show tools of the machine to the tests of later tiers only."""
    with shown() if later_tier(item) else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for the tools of `pytest.mark.needs` before any fixture is made."""
    if marks := list(item.iter_markers("needs")):
        if not later_tier(item):
            pytest.fail("a test of the first tier needs no tool: mark it `integration`")
        # Imported late: most tests need no tool, and this imports every package.
        from tests.support.tools import need

        need(*(name for mark in marks for name in mark.args))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes snapshots of sentences again."""
    parser.addoption("--update", action="store_true", help="write the snapshots of sentences again")


@pytest.fixture(scope="session", autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Fail the last test if the tests have left anything in the temporary folder."""
    yield
    gc.collect()
    sweep(_PLACE.path)
    # The owner of a folder that is not swept lives.
    left = [each.name for each in _PLACE.path.iterdir() if not each.name.startswith(PREFIX)]
    assert not left, f"these stay in the temporary folder: {left}"


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """Return what compares a file of sentences with the texts that a test found."""
    return functools.partial(compare, request.config.getoption("--update"))


@pytest.fixture
def spark() -> SparkSession:
    """Start a small local session, shared by all tests with the JVM behind it."""
    from checker.engine.spark_session import start_session

    return start_session("floodmark tests")
