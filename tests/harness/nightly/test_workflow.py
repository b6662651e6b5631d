"""The workflow of the night: a file GitHub can read, whose scripts do what their names say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.formats.nightly_run import Bucket, Night
from tests.support.paths import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yml"
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


def test_the_workflow_is_well_formed_and_complete() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    made = blocks(text)
    assert {
        "name",
        "on/schedule",
        "permissions/contents",
        "jobs/night/runs-on",
        "jobs/night/steps",
        "jobs/publish/needs",
    } <= set(made)
    used = [value[0] for key, value in made.items() if key.endswith("/uses")]
    assert all(re.fullmatch(r"actions/[a-z/-]+@v\d+", name) for name in used)
    for action in ("cache/restore", "cache/save", "upload-artifact", "deploy-pages"):
        assert any(name.startswith(f"actions/{action}@") for name in used), action
    # No job may do more than it says it needs.
    assert made["permissions/contents"] == ["read"]


def test_every_script_of_the_workflow_is_a_script() -> None:
    made = blocks(WORKFLOW.read_text(encoding="utf-8"))
    scripts = [value for key, value in made.items() if key.endswith("/run")]
    assert len(scripts) >= 5
    for lines in scripts:
        script = "\n".join(lines[1:] if lines[0] == "|" else lines)
        script = re.sub(r"\$\{\{.*?\}\}", "x", script)
        checked = subprocess.run(
            ["bash", "-n"], input=script, text=True, check=False, capture_output=True
        )
        assert checked.returncode == 0, checked.stderr
        # Values of events come in as variables, never as text of the script.
        assert script == "\n".join(lines[1:] if lines[0] == "|" else lines)


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
    night = Night(
        number=7,
        seed=7,
        state="finished",
        started="",
        budget_s=1,
        used_s=1,
        cores=1,
        buckets=[bucket("0123456789ab"), bucket("ba9876543210"), bucket("f" * 12, expected=True)],
    )
    folder = github / "store" / "nights"
    folder.mkdir(parents=True)
    (folder / "0007.json").write_bytes(msgspec.json.encode(night))
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
