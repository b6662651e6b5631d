"""Protocols against histories: what each truncation rule loses, keeps or gets stuck on.

The tables are the readable result. They are computed by playing every history of
`replica_scenarios` through the broker's own functions, and compared as text.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from node.core.protocol import HIGH_WATERMARK, KAFKA, KIP_101, KIP_279, LIFTBRIDGE
from tests.node.core.test_short_logs import SIZES, common_prefix, legal_pairs, written
from tests.support.replica_bench import parse
from tests.support.replica_scenarios import SCENARIOS, ShortLogs, Variant, stale_high_watermark

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

# none: nothing is cut but what lies beyond the leader's log end. hw, hwL: to the own, the leader's
# high watermark. v0, v1: KIP-101, and KIP-279 by its letter; z: their leaders enter an epoch with
# its first record only; s: below its first epoch a leader answers its start, as `kip-279` does. lb:
# as v0, but the leader always knows an answer, which no history here tells apart; LB1: with the
# code's offset, one too high. F-ep, F-loc, F-1: `kafka` without the comparison of epochs, without
# the look into the own log, and with one round only.
#
# L: an acknowledged record is lost. S: a follower is stuck. D: a follower is content with another
# record than its leader's. The cells were computed before with a small model of its own. What
# differs from it, or depends on what the history leaves open:
#
# - hwL in KIP-279's scenario 1 and with alternating epochs: the model's leader has a high watermark
#   at the end of the common part. Here it is alone in its ISR, as these histories have it, so that
#   its high watermark is its log end, and a cut to it mends nothing.
# - F-loc, S for D: the model's follower goes on to fetch when nothing was left to cut. Here every
#   fetch is compared, so it is told of the same divergence for ever.
# - F-ep: the model's cells are those of a cut to the leader's log end, whatever the epochs. Here
#   the offset is compared with the end of the epoch that was found, which finds more.
# - "stale high watermark", hw: L only because the old leader dies before its next checkpoint, so
#   that its own HW is stale. Saved in time it is whole again (test below).
# - "KAFKA-7415", HW above the cut, hw: D only because the leader writes before the first fetch.
#   Had it not, the fetch would be out of range and the follower cut to the leader's end.
TABLE = """\
                                     none hw  hwL v0z v0  v1z v1  v1s lb  LB1 kafka F-ep F-loc F-1
KIP-101 scenario 1                   .    L   .   .   .   .   .   .   .   .   .     .    .     .
KIP-279 scenario 2 (batches)         .    L   .   .   .   .   .   .   .   .   .     .    .     .
stale high watermark of a leader     .    L   L   .   .   .   .   .   .   .   .     .    .     .
KIP-101 scenario 2, single records   D    D   D   .   .   .   .   .   .   .   .     .    .     .
KIP-101 scenario 2, a batch of three S    S   S   .   .   .   .   .   .   .   .     .    .     .
second successor                     D    .   D   .   .   .   .   .   .   D   .     .    .     .
KIP-279 scenario 1, n = 15           S    .   S   S   S   .   .   .   S   S   .     S    S     .
KIP-279 scenario 1, n = 20           D    .   D   D   D   .   .   .   D   D   .     D    S     .
KIP-279 scenario 1, n = 25           S    .   S   .   .   .   .   .   .   .   .     .    .     .
KIP-279 scenario 3, HW 0 (unclean)   D    .   D   D   D   .   .   .   D   D   .     .    .     D
KIP-279 scenario 3, HW 2 (unclean)   D    D   D   D   D   D   D   .   D   D   .     .    .     D
KAFKA-7415, HW at the cut            D    .   .   .   .   .   .   .   .   .   .     .    .     .
KAFKA-7415, HW above the cut         D    D   .   D   .   D   .   .   .   .   .     .    .     .
alternating epochs 0 2 4 and 1 3 5   D    .   D   D   D   .   .   .   D   D   .     .    .     D
case A                               .    .   .   .   .   .   .   .   .   .   .     .    .     .
case B                               .    .   .   .   .   .   .   .   .   .   .     .    .     .
case C                               .    .   .   .   .   .   .   .   .   .   .     .    .     .
case D                               .    .   .   .   .   .   .   .   .   .   .     .    .     .
case E                               D    .   .   .   .   .   .   .   .   D   .     .    .     .
case F                               D    .   .   .   D   .   .   .   D   D   .     .    S     .
case G                               D    .   .   D   D   D   D   .   D   D   .     D    S     ."""


def row(name: str, cells: list[str]) -> str:
    columns = zip(COLUMNS, cells, strict=True)
    texts = [f"{cell:{max(len(column) + 1, 4)}}" for column, cell in columns]
    return f"{name:37}{''.join(texts)}".rstrip()


def test_every_history_under_every_protocol() -> None:
    lines = [row("", list(COLUMNS))]
    for name, scenario in SCENARIOS.items():
        lines.append(row(name, [scenario(p).outcome() for p in COLUMNS.values()]))
    assert "\n".join(lines) == TABLE


@pytest.mark.parametrize(("bug", "column"), [("M1", "hw"), ("M2", "v0"), ("M2b", "v1")])
def test_kafka_with_an_older_rule_of_truncation_is_the_older_protocol(
    bug: str, column: str
) -> None:
    for name, scenario in SCENARIOS.items():
        letters = [scenario(v).outcome() for v in (Variant(KAFKA, (bug,)), COLUMNS[column])]
        assert letters[0] == letters[1], name


def test_a_saved_high_watermark_is_not_stale() -> None:
    assert stale_high_watermark(COLUMNS["hw"], saved=True).outcome() == "."


# -- every pair of short logs ---------------------------------------------------------------------

# Over-cut / kept. Over-cut: records that both logs begin with were cut (a loss, if this replica
# leads next). Kept: a record remains that the leader does not have at that offset, when fetching
# begins, if it does. The HW of both is half of the common prefix: behind, as it is for a round.
#
# Single records: the numbers of that model, too, but for F-ep (0/1880 there, see above). In batches
# there are fewer kept, since a cut inside a batch takes all of it; that is luck, and not a rule.
PAIRS = """\
                single records  batches of unlike sizes
none            0/2104          0/2104
hw              1147/0          1147/0
hwL             1147/0          1147/0
v0z             487/283         487/208
v0              0/1223          0/971
v1z             487/164         487/110
v1              0/556           0/436
v1s             0/0             0/0
lb              0/1223          0/971
LB1             0/1880          0/1195
kafka           0/0             0/0
F-ep            0/687           0/356
F-loc           0/1100          0/806
F-1             0/329           0/301"""


@cache
def short_logs(sizes: str) -> list[tuple[str, str, int, int, int]]:
    """The two logs, how many records or batches both begin with, where that ends, and the HW."""
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


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param("single records", id="single"),
        pytest.param("batches of unlike sizes", id="batches", marks=pytest.mark.slow),
    ],
)
def test_every_pair_of_short_logs_under_every_protocol(sizes: str) -> None:
    told = {name: told for name, *told in (re.split(r"  +", line) for line in PAIRS.split("\n"))}
    found = {}
    for column in COLUMNS:
        assert count(column, sizes).pairs == 2398
        found[column] = count(column, sizes).cell
    at = told.pop("").index(sizes)
    assert found == {column: cells[at] for column, cells in told.items()}


def test_where_the_letter_of_kip_279_keeps_anything_not_even_the_first_record_is_common() -> None:
    """It is case G: no epoch of the follower's is as old as the one in the answer, so it cuts to
    the leader's offset and asks no more. KIP-101 errs after common records, too."""
    single = "single records"
    assert count("v1", single).kept_by_common_prefix == {0: 556}
    assert count("v0", single).kept_by_common_prefix == {0: 756, 1: 333, 2: 113, 3: 21}


# -- stories --------------------------------------------------------------------------------------


def stories(scenario: str, *columns: str) -> str:
    """What all have in common, then how it goes on under each protocol, and the outcome."""
    told = {}
    for column in columns:
        cluster = SCENARIOS[scenario](COLUMNS[column])
        letter = cluster.outcome()
        told[column] = [*cluster.story, f"-> {letter}"]
    same = 0
    while len({lines[same] for lines in told.values()}) == 1:
        same += 1
    first = told[columns[0]]
    text = first[:same]
    for column, lines in told.items():
        text += [f"{column}:", *(f"    {line}" for line in lines[same:])]
    return "\n".join(text)


STORIES = {
    "KIP-101 scenario 1": (
        "hw v0 kafka",
        """\
n2 is elected, epoch 1
n2 writes 0e1
n1 fetches at 0: 0e1
0e1 is acknowledged
n2 writes 1e1
n1 fetches at 1: 1e1
1e1 is acknowledged
n1 starts
hw:
    n1 cuts its log from 2 to its HW: 1
    n2 dies, the fetch of n1 unanswered
    n1 is elected, epoch 2
    n2 starts
    n2 cuts its log from 2 to its HW: 0
    n2 fetches at 0: 0e1
    n1: 0e1
    n2: 0e1
    -> L
v0:
    n2 dies, the question of n1 unanswered
    n1 is elected, epoch 2
    n2 starts
    n2 asks for the end of epoch 1: it ends at 2; nothing to cut
    n1: 0e1 1e1
    n2: 0e1 1e1
    -> .
kafka:
    n2 dies, the fetch of n1 unanswered
    n1 is elected, epoch 2
    n2 starts
    n1: 0e1 1e1
    n2: 0e1 1e1
    -> .""",
    ),
    "KIP-101 scenario 2, single records": (
        "hw v0 kafka",
        """\
n1 is elected, epoch 0
n1 writes 0e0
n2 fetches at 0: 0e0
0e0 is acknowledged
n1 writes 1e0
n2 fetches at 1: 1e0
1e0 is acknowledged
n1 dies
n2 dies
n2 has lost everything from offset 1 on
n2 is elected, epoch 1
n2 starts
n2 writes 1e1
1e1 is acknowledged
n1 starts
hw:
    n1: 0e0 1e0
    n2: 0e0 1e1
    -> D
v0:
    n1 asks for the end of epoch 0: it ends at 1; cut to 1
    n1 fetches at 1: 1e1
    n1: 0e0 1e1
    n2: 0e0 1e1
    -> .
kafka:
    n1 fetches at 2, last epoch 0: diverging (0, 1); cut to 1
    n1 fetches at 1: 1e1
    n1: 0e0 1e1
    n2: 0e0 1e1
    -> .""",
    ),
    "KIP-101 scenario 2, a batch of three": (
        "hw v0 kafka",
        """\
n1 is elected, epoch 0
n1 writes 0e0
n2 fetches at 0: 0e0
0e0 is acknowledged
n1 writes 1e0
n2 fetches at 1: 1e0
1e0 is acknowledged
n1 dies
n2 dies
n2 has lost everything from offset 1 on
n2 is elected, epoch 1
n2 starts
n2 writes 1-3e1
1-3e1 is acknowledged
n1 starts
hw:
    n1 fetches at 2: 1-3e1; refused: batch at 1, log end is 2
    n1 fetches at 2: 1-3e1; refused: batch at 1, log end is 2  (again and again)
    n1: 0e0 1e0
    n2: 0e0 1-3e1
    -> S
v0:
    n1 asks for the end of epoch 0: it ends at 1; cut to 1
    n1 fetches at 1: 1-3e1
    n1: 0e0 1-3e1
    n2: 0e0 1-3e1
    -> .
kafka:
    n1 fetches at 2, last epoch 0: diverging (0, 1); cut to 1
    n1 fetches at 1: 1-3e1
    n1: 0e0 1-3e1
    n2: 0e0 1-3e1
    -> .""",
    ),
    "KIP-279 scenario 1, n = 15": (
        "v0 v1 kafka",
        """\
n1 is elected, epoch 1
n1 writes 0-10e1
n2 fetches at 0: 0-10e1
0-10e1 is acknowledged
n1 writes 11-20e1
n2 is elected, epoch 2
n2 writes 11-15e2
n1 is elected, epoch 3
n1 writes 21-30e3
21-30e3 is acknowledged
v0:
    n2 asks for the end of epoch 2: it ends at 21; nothing to cut
    n2 fetches at 16: 11-20e1 21-30e3; refused: batch at 11, log end is 16
    n2 fetches at 16: 11-20e1 21-30e3; refused: batch at 11, log end is 16  (again and again)
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-15e2
    -> S
v1:
    n2 asks for the end of epoch 2: epoch 1 ends at 21; cut to 11
    n2 fetches at 11: 11-20e1 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e1 21-30e3
    -> .
kafka:
    n2 fetches at 16, last epoch 2: diverging (1, 21); cut to 11
    n2 fetches at 11: 11-20e1 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e1 21-30e3
    -> .""",
    ),
    "KIP-279 scenario 1, n = 20": (
        "v0 v1 kafka",
        """\
n1 is elected, epoch 1
n1 writes 0-10e1
n2 fetches at 0: 0-10e1
0-10e1 is acknowledged
n1 writes 11-20e1
n2 is elected, epoch 2
n2 writes 11-20e2
n1 is elected, epoch 3
n1 writes 21-30e3
21-30e3 is acknowledged
v0:
    n2 asks for the end of epoch 2: it ends at 21; nothing to cut
    n2 fetches at 21: 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e2 21-30e3
    -> D
v1:
    n2 asks for the end of epoch 2: epoch 1 ends at 21; cut to 11
    n2 fetches at 11: 11-20e1 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e1 21-30e3
    -> .
kafka:
    n2 fetches at 21, last epoch 2: diverging (1, 21); cut to 11
    n2 fetches at 11: 11-20e1 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e1 21-30e3
    -> .""",
    ),
    "KIP-279 scenario 1, n = 25": (
        "v0 v1 kafka",
        """\
n1 is elected, epoch 1
n1 writes 0-10e1
n2 fetches at 0: 0-10e1
0-10e1 is acknowledged
n1 writes 11-20e1
n2 is elected, epoch 2
n2 writes 11-25e2
n1 is elected, epoch 3
n1 writes 21-30e3
21-30e3 is acknowledged
v0:
    n2 asks for the end of epoch 2: it ends at 21; cut to 11
    n2 fetches at 11: 11-20e1 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e1 21-30e3
    -> .
v1:
    n2 asks for the end of epoch 2: epoch 1 ends at 21; cut to 11
    n2 fetches at 11: 11-20e1 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e1 21-30e3
    -> .
kafka:
    n2 fetches at 26, last epoch 2: diverging (1, 21); cut to 11
    n2 fetches at 11: 11-20e1 21-30e3
    n1: 0-10e1 11-20e1 21-30e3
    n2: 0-10e1 11-20e1 21-30e3
    -> .""",
    ),
}


@pytest.mark.parametrize("scenario", STORIES)
def test_story(scenario: str) -> None:
    columns, text = STORIES[scenario]
    assert stories(scenario, *columns.split()) == text
