"""The workflows: files GitHub can read, whose scripts are scripts and do what their names say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.formats.nightly_run import Bucket, NightlyRun
from tests.support.paths import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
NIGHTLY, TESTS = WORKFLOWS / "nightly.yml", WORKFLOWS / "tests.yml"
ISSUES = ROOT / ".github" / "open_issues.py"


def blocks(text: str) -> dict[str, list[str]]:
    """A plain subset of YAML: the key of each line by its path of indentation; values are text."""
    found: dict[str, list[str]] = {}
    path: list[tuple[int, str]] = []
    literal = -1
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if literal >= 0 and indent > literal:
            found["/".join(name for _, name in path)].append(line)
            continue
        literal = -1
        assert "\t" not in line, number
        assert indent % 2 == 0, f"line {number} is not indented by twos"
        item = line.strip()
        if item.startswith("- "):
            indent += 2
            item = item[2:]
            while path and path[-1][0] >= indent - 1:
                path.pop()
            path.append((indent - 1, str(number)))
        key, colon, value = item.partition(":")
        assert colon, f"line {number}: {item!r} is no key"
        assert not value or value.startswith(" "), f"line {number}: no space after the colon"
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, key))
        name = "/".join(part for _, part in path)
        assert name not in found, f"line {number}: {name} is there twice"
        found[name] = [value.strip()]
        if value.strip() == "|":
            literal = indent
    return found


def all_values(made: dict[str, list[str]], key: str) -> list[list[str]]:
    return [value for name, value in made.items() if name.endswith(f"/{key}")]


@pytest.mark.parametrize("workflow", [NIGHTLY, TESTS], ids=lambda path: path.stem)
def test_a_workflow_is_well_formed_and_asks_for_no_more_than_it_needs(workflow: Path) -> None:
    made = blocks(workflow.read_text(encoding="utf-8"))
    assert made["name"] == [workflow.stem]
    assert made["permissions/contents"] == ["read"]
    used = [value for (value,) in all_values(made, "uses")]
    assert used[0].startswith("actions/checkout@")
    assert all(re.fullmatch(r"actions/[a-z/-]+@v\d+", name) for name in used)
    assert ['"3.11"'] in all_values(made, "python-version")


@pytest.mark.parametrize(("workflow", "least"), [(NIGHTLY, 5), (TESTS, 2)])
def test_every_script_of_a_workflow_is_a_script(workflow: Path, least: int) -> None:
    scripts = all_values(blocks(workflow.read_text(encoding="utf-8")), "run")
    assert len(scripts) >= least
    for lines in scripts:
        script = "\n".join(lines[1:] if lines[0] == "|" else lines)
        # Values of events come in as variables, never as text of the script.
        assert "${{" not in script
        checked = subprocess.run(
            ["bash", "-n"], input=script, text=True, check=False, capture_output=True
        )
        assert checked.returncode == 0, checked.stderr


def test_the_nightly_workflow_keeps_the_store_and_publishes_the_index() -> None:
    made = blocks(NIGHTLY.read_text(encoding="utf-8"))
    assert {"on/schedule", "jobs/publish/needs"} <= set(made)
    used = [value for (value,) in all_values(made, "uses")]
    for action in ("cache/restore", "cache/save", "upload-artifact", "deploy-pages"):
        assert any(name.startswith(f"actions/{action}@") for name in used), action


def test_the_workflow_of_pull_requests_runs_the_tests_and_keeps_what_failed() -> None:
    made = blocks(TESTS.read_text(encoding="utf-8"))
    assert "on/pull_request" in made
    assert ["make test"] in all_values(made, "run")
    (path,) = all_values(made, "path")
    assert [line.strip() for line in path] == ["|", "store", "/tmp/pytest-of-*"]
    assert ["failure()"] in all_values(made, "if")


def bucket(key: str, *, expected: bool = False) -> Bucket:
    return Bucket(
        key=key,
        protocol="kafka",
        world="simulated",
        property="liveness",
        name="liveness: stuck",
        expected=expected,
        count=2,
        sentence="Nothing moves.",
        replay="floodmark replay x.json",
    )


@pytest.fixture
def github(tmp_path: Path) -> Path:
    """A `gh` that writes down what is asked of it, with one open issue."""
    open_issue = json.dumps([{"body": "text\nfloodmark bucket 0123456789ab"}])
    script = (
        f"#!{sys.executable}\nimport json, sys\n"
        f"open({str(tmp_path / 'asked')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        f"print({open_issue!r} if sys.argv[1:3] == ['issue', 'list'] else '')\n"
    )
    command = tmp_path / "bin" / "gh"
    command.parent.mkdir()
    command.write_text(script)
    command.chmod(0o755)
    return tmp_path


def test_a_bucket_with_an_open_issue_gets_no_second_one(github: Path) -> None:
    nightly = NightlyRun(
        number=7,
        seed=7,
        state="finished",
        started="",
        budget_s=1,
        used_s=1,
        cores=1,
        buckets=[bucket("0123456789ab"), bucket("ba9876543210"), bucket("f" * 12, expected=True)],
    )
    folder = github / "store" / "nightly"
    folder.mkdir(parents=True)
    (folder / "0007.json").write_bytes(msgspec.json.encode(nightly))
    path = f"{github / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, str(ISSUES), str(github / "store")],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2 buckets, 1 issues opened\n"
    asked = [json.loads(line) for line in (github / "asked").read_text().splitlines()]
    (created,) = (words for words in asked if words[:2] == ["issue", "create"])
    assert created[created.index("--title") + 1] == "kafka: liveness: stuck"
    assert "floodmark bucket ba9876543210" in created[created.index("--body") + 1]
