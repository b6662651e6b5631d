"""Historical bugs as switches: each is one boolean consulted at one decision point.

The museum's exhibits. A correct broker has all of them off. Codes are those of the catalogue of
mutations (docs/protocols.md); a switch is named on the command line by its name or its code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from node.errors import UsageError


@dataclass(frozen=True, slots=True)
class Switches:
    """Which bugs are on."""

    ack_before_isr: bool = False
    read_beyond_hw: bool = False
    elect_any_replica: bool = False


class Exhibit(NamedTuple):
    """One bug of the museum: what it changes, where it was seen, and what must catch it."""

    name: str
    code: str
    summary: str
    seen_in: str
    breaks: str


EXHIBITS: Final = (
    Exhibit(
        "ack-before-isr", "M18",
        "acks=all is answered after the local append, before the ISR has the batch",
        "Redpanda #6018/#6019", "no-lost-acknowledged-write",
    ),
    Exhibit(
        "read-beyond-hw", "M19",
        "consumers are served up to the log end instead of the high watermark",
        "Redpanda #14794", "reads-below-hw",
    ),
    Exhibit(
        "elect-any-replica", "M22",
        "the controller lets the first replica that lives lead, even outside ISR and ELR",
        "Kafka unclean leader election on by default (before 0.11)", "log-and-metadata",
    ),
)  # fmt: skip

NAMES: Final = tuple(exhibit.name for exhibit in EXHIBITS)
_BY_ANY_NAME: Final = {key.lower(): e.name for e in EXHIBITS for key in (e.name, e.code)}


def canonical(name: str) -> str:
    """The switch's one name, from its name or code. Raises UsageError if there is none."""
    found = _BY_ANY_NAME.get(name.lower())
    if found is None:
        known = ", ".join(f"{e.name} ({e.code})" for e in EXHIBITS)
        raise UsageError(f"unknown switch '{name}' (known: {known})")
    return found


def parse(names: Iterable[str]) -> Switches:
    """Switches from their names or codes. Raises UsageError on an unknown one."""
    wanted = {canonical(name).replace("-", "_") for name in names}
    return Switches(**{f.name: True for f in fields(Switches) if f.name in wanted})
