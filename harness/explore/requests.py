"""The requests and limits of an exploration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from harness.explore.bounds import Bounds
from harness.formats.options import READABLE, Budget, Json, Quiet, Store


class ExplorationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an exploration: processor time in seconds and resident memory in MiB; 0: no
    limit. After the first violation, up to `more` others of the same round are collected."""

    seconds: float = 0.0
    memory_mb: int = 6000
    more: int = 6


class ExploreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to explore. `breaks`: the property that must be violated, "" for any."""

    bounds: Bounds = Bounds()
    breaks: str = ""
    memory: Annotated[
        int,
        Meta(
            ge=0,
            le=10**6,
            extra={"unit": "MiB"},
            description="Stop at this many MiB, or such as 2GB; 0: no limit.",
        ),
    ] = 6000
    budget_s: Annotated[
        Budget, Meta(description="Stop after this much processor time; 0s: no limit.")
    ] = 0.0
    store: Annotated[Store, Meta(description="Folder for results; they go to its explored/.")] = (
        Path("store")
    )
    replay: Annotated[
        Path | None,
        Meta(
            description="Follow the path of this run folder of an earlier exploration again.",
            extra=READABLE,
        ),
    ] = None
    quiet: Quiet = False
    json: Json = False
