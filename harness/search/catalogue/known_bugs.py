"""The known bugs that a search can look for, as data.

A target is a historical bug turned on in a correct protocol, or a promise that a faulty protocol is
known to break. `harness.search.catalogue.catalogue` searches for each."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from checker.formats.anomalies import LIVENESS, LOG
from harness.formats.finding import Finding
from node.core import protocol as protocols
from node.core.bugs import KNOWN_BUGS
from node.formats.errors import UsageError, unknown_name


class SearchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A known bug to search for, or a promise that a faulty protocol breaks. `code` is short and
    unique. `source` is where the bug was seen. `breaks` is the property that must be violated.
    `bug` is "" if the protocol itself is faulty. `faults` are kinds of disk faults that schedules
    may have besides the usual ones, `options` are options of the workload that all schedules
    have."""

    code: str
    name: str
    protocol: str
    source: str
    breaks: str
    bug: str = ""
    faults: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def bugs(self) -> tuple[str, ...]:
        """The names of the bugs to turn on."""
        return (self.bug,) if self.bug else ()

    @property
    def can_end_worse(self) -> bool:
        """Return whether faults that lose records can make the bug visible."""
        return self.breaks not in (LIVENESS, LOG)

    @property
    def what(self) -> str:
        """The property that is broken, and by which bug or protocol."""
        return f"{self.breaks} ({self.name})"

    @property
    def note(self) -> str:
        return f"Seen in: {self.source}"

    def on(self, version: str) -> str:
        """Return the protocol, which has no versions."""
        return self.protocol

    def shows(self, finding: Finding) -> bool:
        """Return whether a finding is of this entry: its subject reports no others."""
        return True

    def settles(self, finding: Finding) -> bool:
        """Return whether no other finding is looked for after a shrunk one."""
        return True

    def is_complete(self, finding: Finding) -> bool:
        """Return whether other findings need not be shrunk: in the simulated world all are."""
        return False


def search_targets() -> Iterator[SearchTarget]:
    """Yield all targets as in the catalogue: bugs, then promises that faulty protocols break."""
    for target in KNOWN_BUGS:
        yield SearchTarget(
            code=target.code,
            name=target.name,
            source=target.seen_in,
            bug=target.name,
            protocol=target.protocol,
            breaks=target.breaks,
            faults=target.faults,
            options=target.options,
        )
    for protocol in protocols.REGISTRY.values():
        for number, broken in enumerate(broken_by(protocol), start=1):
            yield SearchTarget(
                code=f"{protocol.name}-{number}",
                name=protocol.name,
                source=protocol.citation,
                protocol=protocol.name,
                breaks=broken,
            )


def wanted_targets(only: tuple[str, ...] = ()) -> list[SearchTarget]:
    """Return the targets with these codes or names, or all. Raises UsageError for unknown ones."""
    known = list(search_targets())
    if not only:
        return known
    asked = {name.lower() for name in only}
    wanted = [e for e in known if asked & {e.code.lower(), e.name.lower()}]
    found = {name.lower() for e in wanted for name in (e.code, e.name)}
    if missing := [name for name in only if name.lower() not in found]:
        names = [name for target in known for name in (target.code, target.name)]
        raise UsageError(unknown_name("bug", missing[0], names, "`floodmark bugs` lists them"))
    return wanted


def broken_by(protocol: protocols.Protocol) -> list[str]:
    """Return the properties that a protocol is known to break."""
    return [name for name, expected in protocol.expected if expected == "violable"]


def correct_protocols() -> list[str]:
    """Return the protocols that are expected to keep every promise."""
    return [p.name for p in protocols.REGISTRY.values() if not broken_by(p)]
