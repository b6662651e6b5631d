"""The workflows and the action: permissions, scripts, verdicts, and the issues that they open."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import python_process
from tests.support.nightly_fakes import bucket, nightly_run, write_nightly_run
from tests.support.paths import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
NIGHTLY, TESTS = WORKFLOWS / "nightly.yml", WORKFLOWS / "tests.yml"
ISSUES = ROOT / ".github" / "open_issues.py"
STORMS = ROOT / ".github" / "actions" / "storms"

BLOCK = re.compile(r"^( *)(?:- )?run: *(?:\|\n((?:\1   *.*\n|\n)+)|(.+)\n)", re.MULTILINE)


def read(workflow: Path) -> str:
    text = workflow.read_text(encoding="utf-8")
    indents = {len(line) - len(line.lstrip(" ")) for line in text.splitlines() if line.strip()}
    assert "\t" not in text
    assert not [indent for indent in indents if indent % 2], "indented by twos"
    return text


def scripts(text: str) -> list[str]:
    return [textwrap.dedent(block or line) for _, block, line in BLOCK.findall(text)]


@pytest.mark.parametrize("workflow", [NIGHTLY, TESTS], ids=lambda path: path.stem)
def test_a_workflow_asks_for_no_more_than_it_needs(workflow: Path) -> None:
    text = read(workflow)
    assert text.count(f"\nname: {workflow.stem}\n") == 1
    assert "\npermissions:\n  contents: read\n" in text
    used = re.findall(r"uses: (.+)", text)
    assert used[0].startswith("actions/checkout@")
    assert all(re.fullmatch(r"actions/[a-z/-]+@v\d+", name) for name in used)
    assert 'python-version: "3.11"' in text


@pytest.mark.parametrize(
    ("workflow", "least"), [(NIGHTLY, 5), (TESTS, 2), (STORMS / "action.yml", 4)]
)
def test_every_script_of_a_workflow_is_a_script(workflow: Path, least: int) -> None:
    text = read(workflow)
    assert len(scripts(text)) == len(re.findall(r"^ *(?:- )?run:", text, re.MULTILINE)) >= least
    for script in scripts(text):
        # Values of events come in as variables, never as text of the script.
        assert "${{" not in script
        checked = subprocess.run(
            ["bash", "-n"], input=script, text=True, check=False, capture_output=True
        )
        assert checked.returncode == 0, checked.stderr


@pytest.fixture
def github(tmp_path: Path) -> Path:
    """Write a `gh` that records how it is called and knows the issues of four buckets, of which
    three are closed; return its folder."""
    closed = [("b" * 12, []), ("c" * 12, ["floodmark-accepted"]), ("e" * 12, [])]
    known = [
        {"number": 5, "state": "OPEN", "labels": [], "body": "text\nfloodmark bucket 0123456789ab"},
        *(
            {
                "number": number,
                "state": "CLOSED",
                "labels": [{"name": label} for label in labels],
                "body": f"text\nfloodmark bucket {key}",
            }
            for number, (key, labels) in enumerate(closed, 6)
        ),
    ]
    open_issue = json.dumps(known)
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


def test_a_bucket_has_one_issue_which_is_reopened_unless_it_is_accepted(github: Path) -> None:
    stuck = {
        "name": "liveness: stuck",
        "sentence": "Nothing moves.",
        "replay": "floodmark replay x",
    }
    keys = ("0123456789ab", "ba9876543210", "b" * 12, "c" * 12)
    found = [bucket(key, **stuck) for key in keys]
    expected = bucket("f" * 12, expected=True, **stuck)
    write_nightly_run(github / "store", nightly_run(7, buckets=[*found, expected]))
    path = f"{github / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = python_process.run(ISSUES, github / "store", PATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "4 buckets, 1 issues opened, 1 reopened\n"
    asked = [json.loads(line) for line in (github / "asked").read_text().splitlines()]
    (created,) = (words for words in asked if words[:2] == ["issue", "create"])
    assert created[created.index("--title") + 1] == "kafka: liveness: stuck"
    assert "floodmark bucket ba9876543210" in created[created.index("--body") + 1]
    changed = {tuple(words[1:3]): words[-1] for words in asked if words[1] in ("edit", "reopen")}
    assert changed.keys() == {("edit", "5"), ("reopen", "6")}
    assert all("times in nightly run 7" in text for text in changed.values())


def test_the_action_annotates_what_is_not_valid(tmp_path: Path) -> None:
    total = {"runs": 2, "verdicts": {"unknown": 2}, "problems": ["50 % idle:\nslow"]}
    finding = {"bucket": "no-lost, x: y", "sentence": "lost, at 1.5 s.", "run": "store/a"}
    outcome = {"total": total, "findings": [finding]}
    (tmp_path / "outcome.json").write_text(json.dumps(outcome))
    done = python_process.run(STORMS / "report.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "annotations").read_text() == (
        "::error title=floodmark no-lost%2C x%3A y::lost, at 1.5 s.\n"
        "::warning title=floodmark storms::2 storms: 2 unknown; 50 %25 idle:%0Aslow\n"
    )


@pytest.mark.parametrize("unknown", ["fail", "pass"])
@pytest.mark.parametrize("verdict", ["valid", "invalid", "unknown", "not-exercised"])
def test_the_action_may_pass_what_proved_nothing(
    verdict: str, unknown: str, tmp_path: Path
) -> None:
    *_, script = scripts(read(STORMS / "action.yml"))
    (tmp_path / "verdict").write_text(verdict)
    env = {"PATH": os.environ["PATH"], "FLOODMARK_STORE": str(tmp_path), "UNKNOWN": unknown}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], env=env, stdout=subprocess.PIPE, text=True
    )
    passes = verdict == "valid" or (verdict != "invalid" and unknown == "pass")
    assert (done.returncode == 0, done.stdout) == (passes, f"floodmark: {verdict}\n")


@pytest.mark.integration
def test_the_action_passes_a_valid_log_and_fails_an_invalid_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The installation finds what floodmark needs, and fetches nothing.
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    logs = STORMS / "rehearsal"
    cases = f"Whole schedule={logs}/storm.json", "Gap storms=1 arguments=--no-shrink"
    for code, words in enumerate(cases):
        given = f"adapter={logs}/logs.py:{words}".split()
        command = [sys.executable, STORMS / "rehearse.py", tmp_path, *given]
        told = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
        assert told.endswith(f"Install: 0\nStorms: 0\nReport: 0\nThe verdict: {code}\n")
        junit = ElementTree.parse(tmp_path / "floodmark-store" / "junit.xml")
        runs = [Path(str(failure.text)) for failure in junit.iter("failure")]
        assert [(run / "report.html").is_file() for run in runs] == [True] * code
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == "verdict=valid\nverdict=invalid\n"
    # The drawn storm may lose more than the record that no reader gets.
    headline = r"## floodmark: invalid\n\ninvalid: \d+ acknowledged records? .*lost"
    assert re.search(headline, (tmp_path / "GITHUB_STEP_SUMMARY").read_text())
