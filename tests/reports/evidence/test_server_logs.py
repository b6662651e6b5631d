"""The lines that the servers printed about a failure, on the axis of the run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reports.evidence import model
from reports.evidence.server_logs import ServerLogs, server_logs
from tests.support import report_fixtures as made

FORMS = {
    "NATS": "[123] %Y/%m/%d %H:%M:%S.{us} [INF] ",
    "Kafka": "[%Y-%m-%d %H:%M:%S,{ms}] INFO ",
    "Redis": "123:S %d %b %Y %H:%M:%S.{ms} * ",
    "PostgreSQL": "%Y-%m-%d %H:%M:%S.{ms} UTC [123] LOG:  ",
    "etcd": '{{"level":"info","ts":"%Y-%m-%dT%H:%M:%S.{us}Z","msg":"',
}


class Broken:
    """A run that lost a record, and what its servers print."""

    def __init__(self, folder: Path) -> None:
        self.folder = made.storm(folder / "store" / "t", broken=True)
        found = model.read(self.folder)
        assert found.first_finding is not None
        self.info, self.at_us = found.info, found.first_finding.t_us

    def line(self, form: str, after_s: float, text: str, zone_h: float = 0) -> str:
        """Return a line that is printed so long after the finding."""
        epoch_us = self.info.epoch_us + self.at_us - self.info.monotonic_us
        at = datetime.fromtimestamp(epoch_us / 1e6, UTC)
        at += timedelta(seconds=after_s, hours=zone_h)
        us = f"{at.microsecond:06}"
        return at.strftime(FORMS[form]).format(us=us, ms=us[:3]) + text

    def shown(self, node: str, lines: Sequence[str]) -> ServerLogs | None:
        (self.folder / "output").mkdir(exist_ok=True)
        (self.folder / "output" / f"{node}.txt").write_text("\n".join(lines) + "\n")
        return server_logs(model.read(self.folder))


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    return Broken(tmp_path)


@pytest.mark.parametrize("zone_h", [0, 2, -3.5])
@pytest.mark.parametrize("form", FORMS)
def test_a_line_stands_where_it_was_printed_in_every_form_and_zone(
    broken: Broken, form: str, zone_h: float
) -> None:
    found = broken.shown(
        "n2",
        [
            broken.line(form, -1, "truncated to 5", zone_h),
            "a line without a time",
            broken.line(form, 600, "another day", zone_h),
        ],
    )
    assert found is not None
    assert {(line.node, line.text[-14:]) for line in found.first} == {
        ("n2", "truncated to 5"),
        ("n2", "without a time"),
    }
    for line in found.first:
        assert abs(line.t_us - broken.at_us + 1_000_000) <= 1000


def test_what_is_rare_and_tells_of_errors_comes_before_what_is_repeated(broken: Broken) -> None:
    often = [broken.line("NATS", -1 - n / 100, f"error: no leader, try {n}") for n in range(50)]
    calm = [broken.line("NATS", -0.5, f"served {word}") for word in "abcdefghijk"]
    rare = broken.line("NATS", -60, "falls back to an old epoch")
    old = broken.line("NATS", -60, "listens")
    found = broken.shown("n1", [rare, old, *reversed(often), *calm])
    assert found is not None
    texts = [line.text.partition("] ")[2].partition("] ")[2] for line in found.first]
    assert texts[:2] == ["falls back to an old epoch", "error: no leader, try 0"]
    assert [line.times for line in found.first[:2]] == [1, 50]
    assert len(found.first) + len(found.rest) == 13, "the line that listens says nothing of it"


@pytest.mark.parametrize("line", ["", "2026-99-99 10:00:00 odd", "\x00\xff"])
def test_a_log_without_times_says_nothing(broken: Broken, line: str) -> None:
    assert broken.shown("n1", [line]) is None


def test_a_simulated_run_and_one_that_holds_have_no_such_lines(
    broken: Broken, tmp_path: Path
) -> None:
    line = broken.line("NATS", 0, "error")
    assert broken.shown("n1", [line]) is not None
    made.edit(broken.folder / "run.json", world="simulated")
    assert broken.shown("n1", [line]) is None
    broken.folder = made.storm(tmp_path / "store" / "valid")
    assert broken.shown("n1", [line]) is None
