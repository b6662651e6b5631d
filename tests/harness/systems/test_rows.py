"""Each row of docs/systems/README.md is run as often as it says, and the document has what was
found last: `pytest tests/harness/systems/test_rows.py --update -m 'nightly or not nightly'`."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from harness.systems import registry
from tests.support.command import exit_code
from tests.support.paths import ROOT

ROWS = json.loads((Path(__file__).parent / "rows.json").read_text())
FOUND = Path(__file__).with_name("rows_found.json")
DOCUMENT = ROOT / "docs/systems/README.md"
BEGIN = "<!-- rows: written by tests/harness/systems/test_rows.py -->\n"
END = "<!-- end of rows -->"
HEAD = "| system | configuration | schedule | verdicts | records lost | run |\n"
HEAD += "|---" * 6 + "|\n"
LOSS = "no-lost-acknowledged-write"


def name(row: dict[str, Any]) -> str:
    settings = [f"{key}={value}" for key, value in row.get("settings", {}).items()]
    return " ".join((row["system"], *settings, row["schedule"], row.get("disk", "")))


def table() -> str:
    """Return the rows that were run, as Markdown."""
    text, found = HEAD, json.loads(FOUND.read_text())
    for row in ROWS:
        if (last := found.get(name(row))) is not None:
            settings = " ".join(f"`{k}={v}`" for k, v in row.get("settings", {}).items())
            disk = f", {row.get('disk')} disks" * ("disk" in row)
            lost = f"{min(last['lost'])} to {max(last['lost'])}" if any(last["lost"]) else ""
            text += f"| {row['system']} {last['version']} | {settings or 'default'} "
            text += f"| `{row['schedule']}`{disk} | {last['as_expected']} of {len(last['lost'])} "
            text += f"{row['expect']} | {lost} | {last['date']} |\n"
    return text


@pytest.mark.nightly
@pytest.mark.parametrize(
    "row", [pytest.param(r, id=name(r), marks=pytest.mark.needs(r["system"])) for r in ROWS]
)
def test_a_row_holds(
    row: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    words = "--system {system} --schedule {schedule} --disk {disk}".format(**{"disk": "auto"} | row)
    for key, value in row.get("settings", {}).items():
        words += f" --set {key}={value}"
    verdicts, lost = [], []
    for seed in range(row["of"]):
        quiet = f"--store {tmp_path} --seed {seed} --no-spark --no-report --quiet --json"
        exit_code(["run", *words.split(), *quiet.split()])
        result = json.loads(capsys.readouterr().out)["result"]
        verdicts.append(result["verdict"])
        lost.append(sum(a.get("count", 1) for a in result["anomalies"] if a["property"] == LOSS))
    held = verdicts.count(row["expect"])
    if request.config.getoption("--update"):
        made = {"as_expected": held, "lost": lost, "date": str(datetime.date.today())}
        made["version"] = registry.find(row["system"]).version()
        found = json.loads(FOUND.read_text()) | {name(row): made}
        FOUND.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert held >= row["least"], verdicts


def test_the_document_has_what_was_found_last(request: pytest.FixtureRequest) -> None:
    before, _, rest = DOCUMENT.read_text("utf-8").partition(BEGIN)
    written, _, after = rest.partition(END)
    if request.config.getoption("--update"):
        DOCUMENT.write_text(f"{before}{BEGIN}{table()}{END}{after}", "utf-8")
        return
    assert written == table()
