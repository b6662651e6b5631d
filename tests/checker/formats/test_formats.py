"""The files that the checker writes."""

from __future__ import annotations

import pytest

from checker.formats.story import Span, Story, StoryStep
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
STEP = StoryStep(
    t_us=1, text="n1 leads.", kind="role", node="n1", breaks="overwritten", rule="clean-election"
)
SPAN = Span(lane="led", who="n1", from_us=1, until_us=2, what="kill", epoch=3)


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
        Format(STEP, (("t_us", -1), ("text", 5))),
        Format(SPAN, (("lane", "x"), ("from_us", -1))),
        Format(
            Story(
                about="lost",
                property="p",
                partition="log-0",
                offset=1,
                value=7,
                epoch=2,
                client="c1",
                acknowledged_us=5,
                cause=0,
                loss=0,
                loss_us=1,
                traced=False,
                steps=(STEP,),
                spans=(SPAN,),
                left_out=3,
                format=1,
            ),
            (("offset", -2), ("steps", [{"text": "x"}])),
        ),
    ],
    ids=repr,
)
def test_format(form: Format) -> None:
    check(form)
