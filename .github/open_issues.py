"""Opens one issue for each bucket of the last nightly run that has none open yet.

`open_issues.py STORE`, with the `gh` command logged in. A bucket's key stands in the body of its
issue; a bucket with an open issue is left alone, so nothing is opened twice. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LABEL = "floodmark-bucket"
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
    """Compare the last nightly run with the open issues, and open what is missing."""
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
    listed = gh(
        "issue", "list", "--state", "open", "--label", LABEL, "--limit", "1000", "--json", "body"
    )
    known = "\n".join(str(issue["body"]) for issue in json.loads(listed))
    missing = [bucket for bucket in news if marker(bucket["key"]) not in known]
    for bucket in missing[:MOST_ISSUES]:
        title = f"{bucket['protocol']}: {bucket['name']}"[:200]
        gh("issue", "create", "--title", title, "--label", LABEL, "--body", body(bucket, nightly))
    sys.stdout.write(f"{len(news)} buckets, {len(missing[:MOST_ISSUES])} issues opened\n")


if __name__ == "__main__":
    main()
