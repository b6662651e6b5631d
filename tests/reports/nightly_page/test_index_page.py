"""The index of nightly runs: it says what they have shown and nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from harness.bench.browser import Browser
from harness.formats.nightly_run import (
    Bucket,
    Canary,
    NightlyRun,
    TimeToBug,
    Totals,
    Unmet,
    Unseen,
    VerdictCounts,
)
from reports.nightly_page import index_model
from reports.nightly_page.index_page import render_index

LOST = "no-lost-acknowledged-write"
EXPECTED = {
    "kafka": {LOST: "holds", "liveness": "holds"},
    "quorum-naive": {LOST: "violable", "liveness": "holds"},
    "liftbridge": {LOST: "violable", "liveness": "violable"},
}


def bucket(name: str, count: int, *, protocol: str = "kafka", faults: int = -1) -> Bucket:
    return Bucket(
        key=f"{name:0>12}",
        protocol=protocol,
        world="simulated",
        property=LOST,
        name=f"{LOST}: {name}",
        expected=protocol != "kafka",
        count=count,
        sentence=f"Lost by <{name}>.",
        faults=faults,
        schedule=f"findings/{name}-{faults}.json" if faults >= 0 else "",
        replay=f"floodmark replay store/findings/{name}-{faults}.json" if faults >= 0 else "",
    )


def nightly_run(number: int, **fields: object) -> NightlyRun:
    made = NightlyRun(
        number=number,
        seed=number * 1_000_000,
        state="finished",
        budget_s=1200,
        used_s=1190,
        started=f"2026-01-{number:02d}T01:00:00+00:00",
        cores=2,
        machine="2 cores",
        expected=EXPECTED,
        canary=Canary(result="failed", bug="ack-before-isr"),
        totals=Totals(schedules=5000, search_seconds=500.0, real_runs=3, determinism_runs=10),
        cells=[VerdictCounts(protocol="kafka", world="simulated", runs=5000)],
        kinds=("kill", "delay"),
        coverage={"kill/leader/in-sync": 40, "kill/follower/leaderless": 2},
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def written(store: Path, *known: NightlyRun) -> str:
    (store / "nightly").mkdir(parents=True, exist_ok=True)
    for one in known:
        (store / "nightly" / f"{one.number:04d}.json").write_bytes(msgspec.json.encode(one))
    return render_index(store)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.words.append(" ".join(data.split()))


def text(page: str) -> str:
    parser = _Text()
    parser.feed(page)
    return " ".join(parser.words)


def test_an_empty_store_is_said_to_be_empty(tmp_path: Path) -> None:
    said = text(render_index(tmp_path))
    assert "This store has no nightly run yet." in said
    for claim in ("green", "held", "canary", "✓"):
        assert claim not in said.lower()


def test_what_was_not_tried_is_named(tmp_path: Path) -> None:
    unseen = {"kafka": Unseen(schedules=5000, states=900, unseen=0.421)}
    said = text(written(tmp_path, nightly_run(1, unseen=unseen)))
    assert "not seen yet kafka 42 % at most so probable" in said
    assert "Never met (kind of fault, state of the partitions): delay, kill (an ISR short)." in said
    assert "not seen yet" not in text(written(tmp_path, nightly_run(1)))


def test_a_quiet_nightly_run_is_green_and_says_what_it_rests_on(tmp_path: Path) -> None:
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


def test_what_was_not_met_again_is_not_forgotten(tmp_path: Path) -> None:
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
    assert not index_model.still_open([first, second], lambda path: True), "mended"
    said = text(written(tmp_path, first, second))
    assert "still open" not in said
    assert f"no longer fails kafka · {LOST}: cut" in said


def test_runs_that_prove_nothing_say_why(tmp_path: Path) -> None:
    idle = ["storm/kafka/kill/1: not-exercised: fault 0 (kill) was never reached."]
    said = text(written(tmp_path, nightly_run(1, proved_nothing=idle)))
    assert f"Real runs of the last nightly run that prove nothing {idle[0]}" in said


def test_the_matrix_tells_expected_from_unexpected(tmp_path: Path) -> None:
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


def test_a_nightly_run_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "nightly").mkdir()
    (tmp_path / "nightly" / "0002.json").write_text('{"number": 2')
    said = text(written(tmp_path, nightly_run(1), nightly_run(3, format=9)))
    assert "nightly/0002.json cannot be read" in said
    assert "nightly/0003.json has format 9, this page reads 1" in said
    assert "1 nightly run recorded" in said


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (375, True)])
def test_the_page_fits_and_loads_nothing(tmp_path: Path, width: int, dark: bool) -> None:
    """In a browser without any network."""
    many = [bucket(f"kind-{n}-with-a-rather-long-name-of-its-mechanism", n + 1) for n in range(4)]
    known = [nightly_run(n, buckets=many, red=["one", "two"]) for n in range(1, 40)]
    known[-1].open = [f"kafka: {many[0].name} (simulated, last met in nightly run 7)"]
    text = written(tmp_path, *known)
    assert not re.search(r"<script|https?://|@import|url\(", text)
    file = tmp_path / "index.html"
    file.write_text(text, encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        page = browser.open(file, width=width, height=3000, dark=dark)
        assert page.console == []
        assert page.requests == [file.resolve().as_uri()]
        assert page.run("document.documentElement.scrollWidth") <= width
        wide = page.run(
            "[...document.querySelectorAll('body *')].filter(x => !x.closest('.scroll, .skip, .sr')"
            " && x.getBoundingClientRect().right > innerWidth + 1).map(x => x.outerHTML)"
        )
        assert wide == []
