"""`timeline.json`: what happened to the offset of a run's first finding, in sentences."""

from __future__ import annotations

from typing import Final

import msgspec

from node.formats.bounds import Number, Offset, Time

FILE: Final = "timeline.json"


class Sentence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a timeline. `kind` is a trace event's name or "fault".

    `breaks` names what went wrong at this step, "" where nothing did: "cut:<reason>" (the record
    was cut away), "elected-without", "overwritten". Names hold no node, offset or time, so that
    two timelines of one bug have the same.
    """

    t_us: Time
    text: str
    kind: str
    node: str = ""
    breaks: str = ""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file: `about` is the anomaly that breaks `property` at `offset` of `partition`."""

    about: str
    property: str
    partition: str
    offset: Offset
    sentences: tuple[Sentence, ...]
    format: Number = 1
