"""`floodmark faults`: the kinds of faults."""

from __future__ import annotations


def faults() -> None:
    """List the kinds of faults that a drawn storm can contain."""
    from nemesis.faults import aliases, storm_kinds

    print("\n".join(storm_kinds()))
    for alias, kinds in aliases().items():
        print(f"{alias} = {', '.join(kinds)}")
