"""Protocols against histories: what each rule of truncation loses, keeps or gets stuck on.

The tables are in docs/protocols.md, and are computed here: from every history of
`scripts/histories.txt` and `scripts/voters.txt` played through the broker's own functions, and from
all pairs of short logs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from node.core.protocol import (
    HIGH_WATERMARK,
    KAFKA,
    KIP_101,
    KIP_279,
    LIFTBRIDGE,
    QUORUM,
    QUORUM_NAIVE,
    QUORUM_PUSH,
)
from tests.node.core.test_short_logs import SIZES, common_prefix, legal_pairs, written
from tests.support.log_notation import parse
from tests.support.paths import ROOT
from tests.support.scripts import Case, play, read
from tests.support.stage_histories import ShortLogs, Variant

SCRIPTS = Path(__file__).parent / "scripts"
HISTORIES = read(SCRIPTS / "histories.txt")
OF_VOTERS = read(SCRIPTS / "voters.txt")
COLUMNS = {
    "none": Variant(KAFKA, ("never-truncate",)),
    "hw": Variant(HIGH_WATERMARK),
    "hwL": Variant(KAFKA, ("truncate-to-leader-hw",)),
    "v0z": Variant(KIP_101, ("lazy-epoch-cache",)),
    "v0": Variant(KIP_101),
    "v1z": Variant(KIP_279, ("lazy-epoch-cache",)),
    "v1": Variant(KIP_279, ("undefined-to-own-hw",)),
    "v1s": Variant(KIP_279),
    "lb": Variant(LIFTBRIDGE),
    "LB1": Variant(LIFTBRIDGE, ("liftbridge-epoch-offset",)),
    "kafka": Variant(KAFKA),
    "F-ep": Variant(KAFKA, ("compare-offsets-only",)),
    "F-loc": Variant(KAFKA, ("no-local-lookup",)),
    "F-1": Variant(KAFKA, ("one-round-only",)),
}
QUORUMS = {
    "quorum": Variant(QUORUM),
    "quorum-naive": Variant(QUORUM_NAIVE),
    **{code: Variant(QUORUM, (code,)) for code in ("R1", "R2", "R3", "R4", "R4b")},
    "quorum-push": Variant(QUORUM_PUSH),
    "R5": Variant(QUORUM_PUSH, ("R5",)),
}


def table(begins: str, document: Path = ROOT / "docs" / "protocols.md") -> list[list[str]]:
    """Return the rows of a table, the first of which begins with these words."""
    lines = [*document.read_text().splitlines(), ""]
    at = next(n for n, line in enumerate(lines) if line.startswith(f"| {begins} |"))
    rows = []
    while lines[at].startswith("|"):
        rows.append([cell.strip(" `") for cell in lines[at].strip("|").split("|")])
        at += 1
    return [rows[0], *rows[2:]]


def ids(case: Case) -> str:
    return case.title


def letter(case: Case, variant: Variant) -> str:
    """Return the letter of the end of a history."""
    own = next(iter(case.variants.values()))
    played = {"protocol": variant.protocol.name, "bugs": ",".join(variant.bugs)}
    stage, _ = play(case, **(own | played))
    return str(stage.letter.replace(".", ""))


@pytest.mark.parametrize("case", HISTORIES, ids=ids)
def test_a_history_ends_under_every_protocol_as_documented(case: Case) -> None:
    head, *rows = table("history | none")
    documented = {name: cells for name, *cells in rows}
    assert head[1:] == list(COLUMNS)
    assert documented.keys() == {case.title for case in HISTORIES}
    found = [letter(case, variant) for variant in COLUMNS.values()]
    assert found == documented[case.title]


@pytest.mark.parametrize("case", OF_VOTERS, ids=ids)
def test_a_history_of_voters_ends_under_every_rule_as_documented(case: Case) -> None:
    head, *rows = table("history | `quorum`")
    documented = {name: cells for name, *cells in rows}
    assert head[1:] == list(QUORUMS)
    assert documented.keys() == {case.title for case in OF_VOTERS}
    assert [letter(case, variant) for variant in QUORUMS.values()] == documented[case.title]


@pytest.mark.parametrize(("bug", "column"), [("M1", "hw"), ("M2", "v0"), ("M2b", "v1")])
def test_kafka_with_an_older_rule_of_truncation_is_the_older_protocol(
    bug: str, column: str
) -> None:
    for case in HISTORIES:
        found = letter(case, Variant(KAFKA, (bug,)))
        assert found == letter(case, COLUMNS[column]), case.title


# -- every pair of short logs ---------------------------------------------------------------------

# Over-cut / kept. Over-cut: records that both logs begin with were cut (a loss, if this replica
# leads next). Kept: a record remains that the leader does not have at that offset, when fetching
# begins, if it does. The HW of both is half of the common prefix: behind, as it is for a round.


@cache
def short_logs(sizes: str) -> list[tuple[str, str, int, int, int]]:
    """Return the two logs, how many records or batches both begin with, its end, and the HW."""
    found = []
    for ours, theirs in legal_pairs():
        leads, follows = (written(log, SIZES[sizes]) for log in (ours, theirs))
        common = common_prefix(ours, theirs)
        ends = [0, *(end for _, end, _ in parse(leads))]
        found.append((leads, follows, common, ends[common], ends[common // 2]))
    return found


class Count:
    """Over all pairs of logs of up to four records (or batches) of four epochs, one writer each."""

    def __init__(self, variant: Variant, sizes: str) -> None:
        self.pairs = self.over_cut = 0
        self.kept_by_common_prefix: dict[int, int] = {}
        mending = ShortLogs(variant, leader_epoch=5)
        for leads, follows, common, end, hw in short_logs(sizes):
            left = mending.left(leads, follows, hw=hw)
            self.pairs += 1
            self.over_cut += left < end
            if left > end:
                kept = self.kept_by_common_prefix
                kept[common] = kept.get(common, 0) + 1

    @property
    def cell(self) -> str:
        return f"{self.over_cut}/{sum(self.kept_by_common_prefix.values())}"


@cache
def count(column: str, sizes: str) -> Count:
    return Count(COLUMNS[column], sizes)


SINGLE, BATCHES = "single records", "batches of unlike sizes"
NIGHTLY = pytest.mark.nightly
CELLS = [
    pytest.param(column, sizes, id=f"{column}, {sizes}", marks=later)
    for column in COLUMNS
    for sizes in (SINGLE, BATCHES)
    for later in [[NIGHTLY] * (sizes == BATCHES and column != "kafka")]
]


@pytest.mark.parametrize(("column", "sizes"), CELLS)
def test_all_pairs_of_short_logs_under_a_protocol_as_documented(column: str, sizes: str) -> None:
    head, *rows = table("cut too far / kept", SCRIPTS.parent / "short_logs.txt")
    documented = {name: dict(zip(head[1:], cells, strict=True)) for name, *cells in rows}
    assert documented.keys() == COLUMNS.keys()
    assert count(column, sizes).pairs == 2398
    assert count(column, sizes).cell == documented[column][sizes].replace(" ", "")


def test_what_the_letter_of_kip_279_keeps_has_no_common_record() -> None:
    """It is case G: no epoch of the follower's is as old as the one in the answer, so it cuts to
    the leader's offset and asks no more. KIP-101 errs after common records, too."""
    assert count("v1", SINGLE).kept_by_common_prefix == {0: 556}
    assert count("v0", SINGLE).kept_by_common_prefix == {0: 756, 1: 333, 2: 113, 3: 21}
