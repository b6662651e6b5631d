"""The kinds of work of a nightly run. A kind is a class: its jobs, and what their rows count."""

from __future__ import annotations

from typing import Final

from harness.nightly.kinds.determinism import Determinism
from harness.nightly.kinds.replays import Replays
from harness.nightly.kinds.searches import KnownBugs, Searches
from harness.nightly.kinds.storms import CanaryStorm, OwnStorms, ThirdPartyStorms
from harness.nightly.night import Kind
from harness.nightly.rows import RowRunning

KINDS: Final[dict[str, type[Kind]]] = {
    kind.name: kind
    for kind in (
        *(CanaryStorm, Searches, KnownBugs, OwnStorms, Replays, Determinism),
        *(ThirdPartyStorms, RowRunning),
    )
}
"""All kinds, by the first word of the keys of their jobs."""
