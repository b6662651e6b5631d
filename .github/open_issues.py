"""Opens one issue for each bucket of the last nightly run, and reopens it when the bucket returns.

`open_issues.py STORE`, with the `gh` command logged in. A bucket's key stands in the body of its
issue, so nothing is opened twice: an open issue gets the new count, a closed one is reopened with
it, unless it has the label `floodmark-accepted`. Standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LABEL = "floodmark-bucket"
ACCEPTED = "floodmark-accepted"
MOST_ISSUES = 10
"""A nightly run that breaks everything is one problem, not a hundred."""


def gh(*words: str) -> str:
    """Output of the GitHub command; it says itself what went wrong."""
    return subprocess.run(["gh", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def marker(key: str) -> str:
    """Return the line by which an issue is known."""
    return f"floodmark bucket {key}"


def body(bucket: dict[str, object], nightly: dict[str, object]) -> str:
    """Return the text of an issue."""
    lines = [
        str(bucket["sentence"]),
        "",
        f"* protocol: {bucket['protocol']}, expected to hold {bucket['property']}",
        f"* class: {bucket['name']} ({bucket['world']} world)",
        f"* met {bucket['count']} times in nightly run {nightly['number']}",
        f"* replay: `{bucket['replay']}`",
        f"* page in the nightly run's store: {bucket['page'] or 'none'}",
        f"* the nightly run: {os.environ.get('RUN_URL', 'see the index')}",
        "",
        marker(str(bucket["key"])),
    ]
    return "\n".join(lines)


def main() -> None:
    """Compare the last nightly run with the issues of earlier ones: open, reopen, count."""
    nightly_runs = sorted(Path(sys.argv[1], "nightly").glob("*.json"))
    if not nightly_runs:
        sys.exit("no nightly run is recorded there")
    nightly = json.loads(nightly_runs[-1].read_text(encoding="utf-8"))
    news = [bucket for bucket in nightly["buckets"] if not bucket["expected"]]
    if not news:
        return
    gh(
        "label",
        "create",
        LABEL,
        "--force",
        "--description",
        "a class of failures found by a nightly run",
    )
    fields = "number,state,body,labels"
    words = ("--state", "all", "--label", LABEL, "--limit", "1000", "--json", fields)
    issues = json.loads(gh("issue", "list", *words))
    opened = reopened = 0
    for bucket in news:
        known = [each for each in issues if marker(bucket["key"]) in each["body"]]
        text = body(bucket, nightly)
        if not known:
            if opened < MOST_ISSUES:
                title = f"{bucket['protocol']}: {bucket['name']}"[:200]
                gh("issue", "create", "--title", title, "--label", LABEL, "--body", text)
                opened += 1
            continue
        # The newest: somebody may have opened another one by hand.
        issue = max(known, key=lambda each: each["number"])
        number = str(issue["number"])
        if issue["state"] == "OPEN":
            gh("issue", "edit", number, "--body", text)
        elif ACCEPTED not in {label["name"] for label in issue["labels"]}:
            gh("issue", "reopen", number, "--comment", text)
            reopened += 1
    sys.stdout.write(f"{len(news)} buckets, {opened} issues opened, {reopened} reopened\n")


if __name__ == "__main__":
    main()
