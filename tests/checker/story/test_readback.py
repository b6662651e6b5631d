"""Stories are true: each sentence is read back and compared with the evidence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from checker.formats.story import Story
from tests.support.story_readback import Reader, read_back, stories


def test_a_sample_of_drawn_failures_has_no_false_sentence() -> None:
    sentences, false, _ = read_back(pages=2, seed=4)
    assert sentences > 20
    assert false == []


@pytest.mark.nightly
def test_a_thousand_drawn_failures_have_no_false_sentence() -> None:
    sentences, false, causes = read_back(pages=1000, seed=0)
    assert sentences > 10_000
    assert len(causes) > 10
    assert false == []


def changed(told: Story) -> Iterator[Story]:
    """Yield the story with one sentence or span that is not true."""
    for i, step in enumerate(told.steps):
        if step.kind in ("append", "ack", "hw", "truncated", "role", "partition", "started"):
            digits = step.text.translate(str.maketrans("0123456789", "1234567890"))
            yield replace(told, steps=(*told.steps[:i], replace(step, text=digits)))
            late = replace(step, t_us=step.t_us + 1)
            yield replace(told, steps=(*told.steps[:i], late))
    for span in told.spans:
        if span.until_us - span.from_us > 1 and span.lane in ("holds", "other"):
            other = "holds" if span.lane == "other" else "other"
            yield replace(told, spans=(replace(span, lane=other),))


def test_a_false_sentence_is_noticed() -> None:
    drawn = ((run, told, list(changed(told))) for _, run, told in stories(seed=4))
    run, told, made = next(story for story in drawn if len(story[2]) > 10)
    record = Reader(run, told).record
    for each in made:
        reader = Reader(run, each)
        reader.record = record
        reader.read()
        assert reader.false, each.steps[-1:]
