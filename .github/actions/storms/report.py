"""Turns what `floodmark run` or `floodmark search` printed with --json into JUnit and a summary.

`report.py STORE` reads STORE/outcome.json, and writes there junit.xml, summary.md, annotations (for
the pull request) and verdict. It prints the folder of each run that failed and has no page yet.
Standard library only."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

WORST_FIRST = ("invalid", "unknown", "not-exercised", "valid")


class Case(NamedTuple):
    """One case of JUnit: a property of a run, or the storms of a search that found nothing."""

    name: str
    verdict: str
    sentence: str = ""
    run: str = ""


def cases_of_run(outcome: dict[str, Any]) -> list[Case]:
    """Return the run, and each of its properties that was judged."""
    result, run = outcome["result"], outcome["path"]
    judged = [each for each in result["properties"] if each["verdict"] != "not-examined"]
    return [
        Case("run", result["verdict"], result["sentence"], run),
        *(Case(each["property"], each["verdict"], each.get("reason", ""), run) for each in judged),
    ]


def cases_of_search(outcome: dict[str, Any]) -> list[Case]:
    """Return each finding; and the storms, which prove nothing unless one of them was judged."""
    counts = outcome["total"]
    verdicts = counts["verdicts"]
    proved = verdicts.get("valid", 0) + verdicts.get("invalid", 0) > 0
    told = ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))
    sentence = f"{counts['runs']} storms: {told or 'none was judged'}"
    return [
        *(
            Case(each["bucket"], "invalid", each["sentence"], each["run"])
            for each in outcome["findings"]
        ),
        Case(
            "storms", "valid" if proved else "unknown", "; ".join([sentence, *counts["problems"]])
        ),
    ]


def junit(cases: list[Case]) -> ElementTree.Element:
    """Return the JUnit suite; what is not valid is a failure."""
    failed = sum(case.verdict != "valid" for case in cases)
    about = {"name": "floodmark", "tests": str(len(cases)), "failures": str(failed)}
    suite = ElementTree.Element("testsuite", about)
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname="floodmark", name=case.name)
        if case.verdict != "valid":
            about = {"type": case.verdict, "message": case.sentence}
            ElementTree.SubElement(element, "failure", about).text = case.run
    return suite


def summary(verdict: str, cases: list[Case], replay: str) -> str:
    """Return the summary of the job, in Markdown: the headline, and the cases in a table."""
    first = next(case for case in cases if case.verdict == verdict)
    rows = [f"| {case.name} | {case.verdict} |" for case in cases]
    lines = [f"## floodmark: {verdict}", "", first.sentence, "", "| case | verdict |", "|---|---|"]
    lines += [
        *rows,
        "",
        "The artifact `floodmark` has the page (`report.html`) and the run folder.",
    ]
    return "\n".join([*lines, *([f"Replay: `{replay}`"] if replay else []), ""])


def annotations(cases: list[Case]) -> str:
    """Return a command of GitHub for each case that is not valid: a line at the pull request."""
    lines = []
    for case in cases:
        kind = {"valid": "", "invalid": "error"}.get(case.verdict, "warning")
        text = (case.sentence or case.verdict).replace("%", "%25")
        title = case.name.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
        for character in "\r\n":
            text = text.replace(character, f"%{ord(character):02X}")
            title = title.replace(character, f"%{ord(character):02X}")
        if kind:
            lines.append(f"::{kind} title=floodmark {title}::{text}\n")
    return "".join(lines)


def main(store: Path) -> None:
    """Write the files, and print the run folders that need a page."""
    outcome = json.loads((store / "outcome.json").read_text(encoding="utf-8"))
    cases = cases_of_run(outcome) if "result" in outcome else cases_of_search(outcome)
    verdict = min((case.verdict for case in cases), key=WORST_FIRST.index)
    ElementTree.ElementTree(junit(cases)).write(store / "junit.xml", encoding="utf-8")
    text = summary(verdict, cases, outcome.get("replay", ""))
    (store / "summary.md").write_text(text, encoding="utf-8")
    (store / "verdict").write_text(verdict, encoding="utf-8")
    (store / "annotations").write_text(annotations(cases), encoding="utf-8")
    failed = sorted({case.run for case in cases if case.run and case.verdict == "invalid"})
    lacking = [run for run in failed if not (Path(run) / "report.html").exists()]
    sys.stdout.writelines(f"{run}\n" for run in lacking)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
