"""`floodmark faults`: the kinds of faults."""

from __future__ import annotations


def faults() -> None:
    """List the kinds of faults that a storm can be drawn from."""
    from nemesis.draw import ALIASES, STORM_KINDS

    print("\n".join(STORM_KINDS))
    for alias, kinds in ALIASES.items():
        print(f"{alias} = {', '.join(kinds)}")
