"""`floodmark faults`: the kinds of faults."""

from __future__ import annotations

from harness.cli.common import print_table
from harness.formats.options import ListRequest


def faults(request: ListRequest) -> None:
    """List the kinds of faults and what each does."""
    from nemesis.faults import KINDS, aliases, storm_kinds

    groups = {kind: [name for name, kinds in aliases().items() if kind in kinds] for kind in KINDS}
    drawn = storm_kinds()
    rows = [
        (
            name,
            " ".join((kind.__doc__ or "").partition("\n\n")[0].split()),
            ", ".join(groups[name]) if name in drawn else "schedules only",
        )
        for name, kind in KINDS.items()
    ]
    print_table(("fault", "effect", "in"), rows, json=request.json)
