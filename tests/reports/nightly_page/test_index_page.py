"""The index of nightly runs: it says what they have shown and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.formats import nightly_run as nightly
from reports.nightly_page import index_model
from reports.nightly_page.index_page import render_index
from tests.support import nightly_fakes as fakes
from tests.support.html_page import HtmlPage
from tests.support.nightly_fakes import LOST
from tests.support.snapshot import Snapshot

EXPECTED = {
    "kafka": {LOST: "holds", "liveness": "holds"},
    "quorum-naive": {LOST: "violable", "liveness": "holds"},
    "liftbridge": {LOST: "violable", "liveness": "violable"},
}


def bucket(name: str, count: int, *, protocol: str = "kafka", faults: int = -1) -> nightly.Bucket:
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


def nightly_run(number: int, **fields: Any) -> nightly.NightlyRun:
    usual = {
        "machine": "2 cores",
        "expected": EXPECTED,
        "canary": nightly.Canary(result="failed", bug="ack-before-isr"),
        "totals": nightly.Totals(
            schedules=5000, search_seconds=500.0, real_runs=3, determinism_runs=10
        ),
        "cells": [nightly.VerdictCounts(protocol="kafka", world="simulated", runs=5000)],
        "kinds": ("kill", "delay"),
        "coverage": {"kill/leader/in-sync": 40, "kill/follower/leaderless": 2},
    }
    return fakes.nightly_run(number, **{**usual, **fields})


def written(store: Path, *known: nightly.NightlyRun) -> str:
    for one in known:
        fakes.write_nightly_run(store, one)
    return render_index(store)


def search(code: str, seconds: float, *, found: bool = True) -> nightly.TimeToBug:
    about = {"code": code, "name": code, "protocol": "kafka", "breaks": LOST, "schedules": 10}
    return nightly.TimeToBug(**about, found=found, seconds=seconds)


CUT = nightly_run(1, buckets=[bucket("cut", 3, faults=2)], red=["x"])
ENDED = {"world": "simulated", "expected": "invalid", "verdict": "valid", "sentence": "valid."}
FIXED = nightly.Unmet(file="store/findings", is_finding=True, **ENDED)
HISTORY = [
    nightly_run(1, buckets=[bucket("cut", 3, faults=5), bucket("known", 9, protocol="liftbridge")]),
    nightly_run(2),
    nightly_run(3, buckets=[bucket("cut", 2, faults=2), bucket("fresh", 1)], red=["x", "y"]),
]
CELLS = [
    nightly.VerdictCounts(protocol="kafka", world="real", runs=4, broken={"liveness": 1}),
    nightly.VerdictCounts(protocol="quorum-naive", world="real", runs=4, broken={LOST: 3}),
    nightly.VerdictCounts(protocol="liftbridge", world="real", runs=2),
]
IDLE = ["storm/kafka/kill/1: not-exercised: fault 0 (kill) was never reached."]
ROWS = [
    nightly.RowRuns(
        **{"name": f"nats sync={sync}", "expect": "valid", "least": 2, "of": 2, "version": "2.15.1"}
        | more
    )
    for sync, more in {
        "always": {"verdicts": {"valid": 2}, "lost": [0, 0]},
        "1s": {"verdicts": {"invalid": 1}, "lost": [9]},
        "5s": {"version": ""},
        "2m": {"missing": "nats-server is not installed"},
    }.items()
]
PAGES: dict[str, list[nightly.NightlyRun]] = {
    "green": [nightly_run(1)],
    "not finished": [nightly_run(1, state="stopped")],
    "no canary judged": [nightly_run(1, canary=nightly.Canary())],
    "a canary that did not fail": [nightly_run(1, red=["canary did not fail: valid."])],
    "no canary without real runs": [nightly_run(1, canary=nightly.Canary(), real=False)],
    "buckets of three runs": HISTORY,
    "a bucket still open": [CUT, nightly_run(2, open=[f"kafka: {LOST}: cut"])],
    "a bucket that is fixed": [CUT, nightly_run(2, unmet=[FIXED])],
    "real runs that prove nothing": [nightly_run(1, proved_nothing=IDLE)],
    "a reason with a full stop": [nightly_run(1, uncovered=["FUSE is missing."])],
    "expected failures": [nightly_run(1, cells=CELLS)],
    "rows of other systems": [nightly_run(1, rows=ROWS, uncovered=["row is open", "another"])],
    "another format": [nightly_run(1), nightly_run(3, format=9)],
}


def blocks(store: Path, *known: nightly.NightlyRun) -> list[str]:
    """Return the texts of the page of a store with these nightly runs."""
    store.mkdir()
    file = store / "index.html"
    file.write_text(written(store, *known), "utf-8")
    return HtmlPage(file).blocks


def test_what_pages_say(tmp_path: Path, snapshot: Snapshot) -> None:
    """The whole of a green page, and of each other the texts that the green page lacks."""
    found = {name: blocks(tmp_path / name, *known) for name, known in PAGES.items()}
    green = found["green"]
    others = {name: [x for x in said if x not in green] for name, said in found.items()}
    snapshot(Path(__file__).with_name("pages.txt"), others | {"green": green})


def test_an_empty_store_claims_nothing(tmp_path: Path) -> None:
    said = " ".join(blocks(tmp_path / "store")).lower()
    assert "this store has no nightly run yet." in said
    assert [claim for claim in ("green", "held", "canary", "✓") if claim in said] == []


def test_buckets_come_with_their_history(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "cut-2.json").write_text("{}")
    page = written(tmp_path, *HISTORY)
    assert page.index(f"{LOST}: fresh") < page.index(f"{LOST}: cut")
    assert 'aria-label="failures by nightly run: 3, 0, 2"' in page
    assert 'href="findings/cut-2.json"' in page
    assert ">schedule, 2 faults</a>" in page
    assert "cut-5" not in page, "the smallest is shown"


def test_a_bucket_not_met_again_stays_open_until_its_schedule_holds() -> None:
    later = nightly_run(2)
    (left,) = index_model.still_open([CUT, later], lambda path: path == "findings/cut-2.json")
    assert left.shown.name == f"{LOST}: cut"
    assert not index_model.still_open([CUT, later], lambda path: False), "nothing is left of it"
    fixed = nightly_run(2, unmet=[FIXED])
    assert not index_model.still_open([CUT, fixed], lambda path: True)


def test_known_bugs_that_were_never_found_come_first(tmp_path: Path) -> None:
    known = [
        nightly_run(1, known_bugs=[search("M1", 4.0), search("M2", 60.0, found=False)]),
        nightly_run(2, known_bugs=[search("M1", 8.0), search("M3", 20.0)]),
    ]
    rows = index_model.known_bugs(known)
    assert [(row.about.code, row.found, row.searches) for row in rows] == [
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
    known = [
        nightly_run(n, canary=nightly.Canary(result=result)) for n, result in enumerate(results, 1)
    ]
    assert index_model.canary_failed(known)[1] == age


def test_a_nightly_run_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "nightly").mkdir()
    (tmp_path / "nightly" / "0002.json").write_text('{"number": 2')
    assert "nightly/0002.json cannot be read" in written(tmp_path, nightly_run(1))
