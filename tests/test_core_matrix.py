"""Protocols against histories: what each truncation rule loses, keeps or gets stuck on.

The tables are the readable result. They are computed by playing every history of
`core_scenarios` through the broker's own functions, and compared as text.
"""

from __future__ import annotations

import pytest
from core_bench import parse
from core_scenarios import SCENARIOS, Mending, stale_high_watermark
from test_core_short_logs import SIZES, common_prefix, legal_pairs, written

from node.core.protocol import HIGH_WATERMARK, KAFKA, KIP_101, KIP_279, Protocol

COLUMNS = {"hw": HIGH_WATERMARK, "v0": KIP_101, "v1": KIP_279, "kafka": KAFKA}

# L: an acknowledged record is lost. S: a follower is stuck. D: a follower is content with another
# record than its leader's. All cells are those of the matrix in the protocols reference (3.6,
# columns hw, v0, v1u, F), computed there with a small model of its own; none differs. Two cells
# depend on what the history leaves open:
#
# - "stale high watermark", hw: L only because the old leader dies before its next checkpoint, so
#   that its own HW is stale. Saved in time it is whole again (test below).
# - "KAFKA-7415", HW above the cut, hw: D only because the leader writes before the first fetch.
#   Had it not, the fetch would be out of range and the follower cut to the leader's end.
#
# The rows of KIP-279's scenario 2 and of cases A to D are not in that matrix; its text says of the
# cases that all protocols come out well, and of the scenario that it is KIP-101's first.
TABLE = """\
                                          hw     v0     v1     kafka
KIP-101 scenario 1                        L      .      .      .
KIP-279 scenario 2 (the same in batches)  L      .      .      .
stale high watermark of a leader          L      .      .      .
KIP-101 scenario 2, single records        D      .      .      .
KIP-101 scenario 2, a batch of three      S      .      .      .
second successor                          .      .      .      .
KIP-279 scenario 1, n = 15                .      S      .      .
KIP-279 scenario 1, n = 20                .      D      .      .
KIP-279 scenario 1, n = 25                .      .      .      .
KIP-279 scenario 3, HW 0 (unclean)        .      D      .      .
KIP-279 scenario 3, HW 2 (unclean)        D      D      D      .
KAFKA-7415, HW at the cut                 .      .      .      .
KAFKA-7415, HW above the cut              D      .      .      .
alternating epochs 0 2 4 and 1 3 5        .      D      .      .
case A                                    .      .      .      .
case B                                    .      .      .      .
case C                                    .      .      .      .
case D                                    .      .      .      .
case E                                    .      .      .      .
case F                                    .      D      .      .
case G                                    .      D      D      ."""


def row(name: str, cells: list[str]) -> str:
    return f"{name:42}{''.join(f'{cell:7}' for cell in cells)}".rstrip()


def test_every_history_under_every_protocol() -> None:
    lines = [row("", list(COLUMNS))]
    for name, scenario in SCENARIOS.items():
        lines.append(row(name, [scenario(p).outcome() for p in COLUMNS.values()]))
    assert "\n".join(lines) == TABLE


def test_a_saved_high_watermark_is_not_stale() -> None:
    assert stale_high_watermark(HIGH_WATERMARK, saved=True).outcome() == "."


# -- every pair of short logs ---------------------------------------------------------------------

# Over-cut / kept. Over-cut: records that both logs begin with were cut (a loss, if this replica
# leads next). Kept: a record remains that the leader does not have at that offset, when fetching
# begins. The follower's HW is half of the common prefix: behind, as it is for a round.
#
# Single records: the numbers of the reference's matrix, all of them. In batches there are fewer
# kept, since a cut inside a batch takes all of it; that is luck, and not a rule.
PAIRS = """\
                                          hw     v0     v1     kafka
single records                            1147/0 0/1223 0/556  0/0
batches of unlike sizes                   1147/0 0/971  0/436  0/0"""


class Count:
    """Over all pairs of logs of up to four records (or batches) of four epochs, one writer each."""

    def __init__(self, protocol: Protocol, sizes: dict[int, list[int]]) -> None:
        self.pairs = self.over_cut = 0
        self.kept_by_common_prefix: dict[int, int] = {}
        mending = Mending(protocol, leader_epoch=5)
        for ours, theirs in legal_pairs():
            leads, follows = written(ours, sizes), written(theirs, sizes)
            common = common_prefix(ours, theirs)
            ends = [0, *(end for _, end, _ in parse(leads))]
            left = mending.left(leads, follows, hw=ends[common // 2])
            self.pairs += 1
            self.over_cut += left < ends[common]
            if left > ends[common]:
                kept = self.kept_by_common_prefix
                kept[common] = kept.get(common, 0) + 1

    @property
    def cell(self) -> str:
        return f"{self.over_cut}/{sum(self.kept_by_common_prefix.values())}"


def test_every_pair_of_short_logs_under_every_protocol() -> None:
    lines = [row("", list(COLUMNS))]
    for name, sizes in SIZES.items():
        counts = [Count(p, sizes) for p in COLUMNS.values()]
        assert {c.pairs for c in counts} == {2398}
        lines.append(row(name, [c.cell for c in counts]))
    assert "\n".join(lines) == PAIRS


def test_where_kip_279_keeps_anything_not_even_the_first_record_is_common() -> None:
    """It is case G: no epoch of the follower's is as old as the one in the answer, so it cuts to
    the leader's offset and asks no more. KIP-101 errs after common records, too."""
    single = SIZES["single records"]
    assert Count(KIP_279, single).kept_by_common_prefix == {0: 556}
    assert Count(KIP_101, single).kept_by_common_prefix == {0: 756, 1: 333, 2: 113, 3: 21}


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
