"""The index of nightly runs: it says what they have shown and nothing else."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from harness.formats.nightly_run import (
    Bucket,
    Canary,
    NightlyRun,
    TimeToBug,
    Totals,
    Unmet,
    VerdictCounts,
)
from reports.nightly_page import index_model
from reports.nightly_page.index_page import render_index
from tests.support import nightly_fakes as fakes
from tests.support.nightly_fakes import LOST

EXPECTED = {
    "kafka": {LOST: "holds", "liveness": "holds"},
    "quorum-naive": {LOST: "violable", "liveness": "holds"},
    "liftbridge": {LOST: "violable", "liveness": "violable"},
}


def bucket(name: str, count: int, *, protocol: str = "kafka", faults: int = -1) -> Bucket:
    file = f"findings/{name}-{faults}.json" if faults >= 0 else ""
    return fakes.bucket(
        f"{name:0>12}",
        protocol=protocol,
        name=f"{LOST}: {name}",
        expected=protocol != "kafka",
        count=count,
        sentence=f"Lost by <{name}>.",
        faults=faults,
        schedule=file,
        replay=f"floodmark replay store/{file}" if file else "",
    )


def nightly_run(number: int, **fields: Any) -> NightlyRun:
    usual = {
        "machine": "2 cores",
        "expected": EXPECTED,
        "canary": Canary(result="failed", bug="ack-before-isr"),
        "totals": Totals(schedules=5000, search_seconds=500.0, real_runs=3, determinism_runs=10),
        "cells": [VerdictCounts(protocol="kafka", world="simulated", runs=5000)],
        "kinds": ("kill", "delay"),
        "coverage": {"kill/leader/in-sync": 40, "kill/follower/leaderless": 2},
    }
    return fakes.nightly_run(number, **{**usual, **fields})


def written(store: Path, *known: NightlyRun) -> str:
    for one in known:
        fakes.write_nightly_run(store, one)
    return render_index(store)


def text(page: str) -> str:
    """Return the visible words of a page, with single spaces."""
    shown = re.sub(r"<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(shown).split())


def test_an_empty_store_claims_nothing(tmp_path: Path) -> None:
    said = text(render_index(tmp_path))
    assert "This store has no nightly run yet." in said
    for claim in ("green", "held", "canary", "✓"):
        assert claim not in said.lower()


def test_faults_that_never_met_a_state_are_named(tmp_path: Path) -> None:
    said = text(written(tmp_path, nightly_run(1)))
    assert "Never met (kind of fault, state of the partitions): delay, kill (an ISR short)." in said


def test_a_green_nightly_run_shows_its_evidence(tmp_path: Path) -> None:
    said = text(written(tmp_path, nightly_run(1)))
    assert "green Nightly run 1 found no unexpected failure: 5,000 schedules searched" in said
    assert "None, in any nightly run." in said
    assert "10.0 schedules/s" in said
    assert "quorum-naive not run not run 0" in said, "what was not run is not said to hold"
    assert "kafka ✓ held ✓ held 5,000" in said
    assert "not at all: delay" in said
    assert "on a follower out of an ISR: kill" in said


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": "stopped"}, "1 found no unexpected failure, but it was not finished"),
        ({"canary": Canary()}, "1 found no unexpected failure, but no canary was judged"),
        ({"red": ["canary did not fail: valid."]}, "red Nightly run 1: canary did not fail"),
        ({"canary": Canary(), "real": False}, "green Nightly run 1 found no unexpected failure"),
    ],
)
def test_a_nightly_run_that_proves_less_is_not_green(
    tmp_path: Path, fields: dict[str, object], says: str
) -> None:
    assert says in text(written(tmp_path, nightly_run(1, **fields)))


def test_buckets_come_with_their_history(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "cut-2.json").write_text("{}")
    page = written(
        tmp_path,
        nightly_run(
            1, buckets=[bucket("cut", 3, faults=5), bucket("known", 9, protocol="liftbridge")]
        ),
        nightly_run(2),
        nightly_run(3, buckets=[bucket("cut", 2, faults=2), bucket("fresh", 1)], red=["x", "y"]),
    )
    said = text(page)
    assert said.index(f"kafka · {LOST}: fresh") < said.index(f"kafka · {LOST}: cut")
    assert "5 times · nightly runs 1 to 3 · simulated" in said
    assert 'aria-label="failures by nightly run: 3, 0, 2"' in page
    assert 'href="findings/cut-2.json"' in page
    assert ">schedule, 2 faults</a>" in page
    assert "its runs are deleted" in said, "no link to what is not there"
    assert "cut-5" not in page, "the smallest is shown"
    assert "Lost by <cut>." in said
    assert "1 bucket of protocols that are known to fail" in said
    assert "red Nightly run 3: 1 new bucket; x (and 1 more)." in said


def test_a_bucket_not_met_again_stays_open_until_its_schedule_holds(tmp_path: Path) -> None:
    first, second = nightly_run(1, buckets=[bucket("cut", 3, faults=2)], red=["x"]), nightly_run(2)
    (left,) = index_model.still_open([first, second], lambda path: path == "findings/cut-2.json")
    assert left.shown.name == f"{LOST}: cut"
    assert not index_model.still_open([first, second], lambda path: False), "nothing is left of it"
    second.open = [f"kafka: {left.shown.name}"]
    said = text(written(tmp_path, first, second))
    assert "2 found no unexpected failure, but 1 bucket of earlier runs is still" in said
    assert f"still open: kafka: {LOST}: cut" in said
    second.open = []
    second.unmet = [
        Unmet(
            file="store/findings",
            world="simulated",
            expected="invalid",
            verdict="valid",
            sentence="valid.",
            is_finding=True,
        )
    ]
    assert not index_model.still_open([first, second], lambda path: True), "fixed"
    said = text(written(tmp_path, first, second))
    assert "still open" not in said
    assert f"no longer fails kafka · {LOST}: cut" in said


def test_real_runs_that_prove_nothing_show_the_reason(tmp_path: Path) -> None:
    idle = ["storm/kafka/kill/1: not-exercised: fault 0 (kill) was never reached."]
    said = text(written(tmp_path, nightly_run(1, proved_nothing=idle)))
    assert f"Real runs of the last nightly run that prove nothing {idle[0]}" in said


def test_the_matrix_distinguishes_expected_failures(tmp_path: Path) -> None:
    cells = [
        VerdictCounts(protocol="kafka", world="real", runs=4, broken={"liveness": 1}),
        VerdictCounts(protocol="quorum-naive", world="real", runs=4, broken={LOST: 3}),
        VerdictCounts(protocol="liftbridge", world="real", runs=2),
    ]
    said = text(written(tmp_path, nightly_run(1, cells=cells)))
    assert "kafka ✓ held ✗ unexpected, 1 4" in said
    assert "quorum-naive expected, 3 found ✓ held 4" in said
    assert "liftbridge expected, not found expected, not found 2" in said


def test_known_bugs_that_were_never_found_come_first(tmp_path: Path) -> None:
    def search(code: str, seconds: float, *, found: bool = True) -> TimeToBug:
        return TimeToBug(
            code=code,
            name=code,
            protocol="kafka",
            breaks=LOST,
            found=found,
            schedules=10,
            seconds=seconds,
        )

    known = [
        nightly_run(1, known_bugs=[search("M1", 4.0), search("M2", 60.0, found=False)]),
        nightly_run(2, known_bugs=[search("M1", 8.0), search("M3", 20.0)]),
    ]
    rows = index_model.known_bugs(known)
    assert [(row.code, row.found, row.searches) for row in rows] == [
        ("M2", 0, 1),
        ("M3", 1, 1),
        ("M1", 2, 2),
    ]
    assert rows[2].seconds == 6.0
    assert rows[2].trend == (4.0, 8.0)
    assert rows[0].trend == (-1.0,)


@pytest.mark.parametrize(
    ("results", "age"),
    [(["failed"], 0), (["failed", ""], 1), (["failed", "missed", ""], 2), (["", "missed"], -1)],
)
def test_the_canary_ages(results: list[str], age: int) -> None:
    known = [nightly_run(n, canary=Canary(result=result)) for n, result in enumerate(results, 1)]
    assert index_model.canary(known).age == age


def test_a_nightly_run_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "nightly").mkdir()
    (tmp_path / "nightly" / "0002.json").write_text('{"number": 2')
    said = text(written(tmp_path, nightly_run(1), nightly_run(3, format=9)))
    assert "nightly/0002.json cannot be read" in said
    assert "nightly/0003.json has format 9, this page reads 1" in said
    assert "1 nightly run recorded" in said
