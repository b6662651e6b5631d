"""The files that the checker writes."""

from __future__ import annotations

import pytest

from checker.formats.timeline import Sentence, Timeline
from checker.formats.verdict import Anomaly, PropertyResult, RunResult, Verdict, Witness
from tests.support.format_table import Format, check

WITNESS = Witness(
    what="send",
    op=1,
    process=2,
    client="c1",
    node="n1",
    t_us=3,
    offset=4,
    value=5,
    epoch=6,
    hash="0f",
)
ANOMALY = Anomaly(
    property="liveness",
    name="no-progress",
    run="a/b",
    jepsen="unseen",
    partition="log-0",
    count=2,
    verdict=Verdict.VALID,
    allowed="because",
    message="It stood still.",
    offset=4,
    t_us=3,
    witnesses=(WITNESS,),
)
SENTENCE = Sentence(t_us=1, text="n1 leads.", kind="role", node="n1", breaks="overwritten")


@pytest.mark.parametrize(
    "form",
    [
        Format(WITNESS, (("t_us", -2), ("offset", -2), ("value", 2**63), ("op", 2**63))),
        Format(ANOMALY, (("count", -1), ("verdict", "fine"), ("offset", 2**63 - 1), ("t_us", -2))),
        Format(
            RunResult(
                run="a/b",
                verdict=Verdict.INVALID,
                sentence="invalid: x.",
                properties=(
                    PropertyResult(
                        property="liveness", verdict=Verdict.VALID, examined=3, reason="r"
                    ),
                ),
                anomalies=(ANOMALY,),
                measures={"acked": 1},
                problems=("p",),
                format=1,
            ),
            (("verdict", "?"), ("properties", [{"property": "x"}]), ("format", "1")),
        ),
        Format(SENTENCE, (("t_us", -1), ("text", 5))),
        Format(
            Timeline(
                about="lost", property="p", partition="log-0", offset=1, sentences=(SENTENCE,)
            ),
            (("offset", -2), ("sentences", [{"text": "x"}])),
        ),
    ],
    ids=repr,
)
def test_format(form: Format) -> None:
    check(form)
