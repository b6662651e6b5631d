"""The rows of the catalogue, as data: historical bugs turned on in a correct protocol, promises
that faulty protocols are known to break, and known losses of third-party systems.

A row does not tell the search how to find it: all are searched with the same generators
(`harness.search.catalogue.catalogue`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from checker.formats.anomalies import DELIVERY, LIVENESS, LOG, LOST_WRITES
from harness.formats.finding import Finding, is_undelivered
from harness.search.draw.families import Disks
from node.core import protocol as protocols
from node.core.bugs import KNOWN_BUGS
from node.formats.errors import UsageError, unknown_name
from node.formats.json_input import MOST_FILE_BYTES, read_bytes


class CatalogueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the catalogue: its short and unique `code`, and the property that it breaks."""

    code: str
    breaks: str

    def shows(self, finding: Finding) -> bool:
        """Return whether a finding is of this row."""
        return True

    def settles(self, finding: Finding) -> bool:
        """Return whether no other finding is looked for after a shrunk one."""
        return True

    def is_complete(self, finding: Finding) -> bool:
        """Return whether other findings need not be shrunk: in the simulated world all are."""
        return False


class SearchTarget(CatalogueRow, frozen=True, kw_only=True):
    """A known bug to search for, or a promise that a faulty protocol breaks. `source` is where the
    bug was seen. `bug` is "" if the protocol itself is faulty. `faults` are kinds of disk faults
    that schedules may have besides the usual ones, `options` are options of the workload that all
    schedules have."""

    name: str
    protocol: str
    source: str
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


ALL: Final = "all"


class KnownLoss(CatalogueRow, frozen=True, kw_only=True):
    """A known loss of records, or of what a group was promised (`anomalies`: the first that it may
    show, empty for any). `settings` is the configuration of the system, `disks` the number of nodes
    that may lose their unsynced data. A finding shows the loss if at least `lost_disks` nodes lost
    data, if it has faults on links (with `on_links`), and if a node logged it (`logged`: a pattern
    for files of the run folder, and a text in one of them). `safe` is the configuration to compare
    with; None: the one that the system declares, {}: there is none."""

    system: str
    what: str
    breaks: str = LOST_WRITES
    anomalies: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    disks: Disks = "none"
    lost_disks: int = 0
    on_links: bool = False
    logged: tuple[str, str] | None = None
    safe: dict[str, str] | None = None

    @property
    def note(self) -> str:
        return f"With: {settings_text(self.settings)}" if self.settings else ""

    def on(self, version: str) -> str:
        """Return the system of this version as a text."""
        return f"{self.system} {version}".rstrip()

    def shows(self, finding: Finding) -> bool:
        lost = finding.property == self.breaks and finding.disks >= self.lost_disks
        lost = lost and (not self.anomalies or finding.anomaly in self.anomalies)
        lost = lost and not is_undelivered(finding.property, finding.anomaly)
        lost = lost and (finding.on_links or not self.on_links)
        return lost and (self.logged is None or _is_logged(Path(finding.run), *self.logged))

    def settles(self, finding: Finding) -> bool:
        """Return whether the smallest schedule failed in most of its several runs."""
        return 2 * finding.counts.failed > finding.counts.of > 1

    def is_complete(self, finding: Finding) -> bool:
        """Return whether it fails in most runs, and was run on a safe configuration, if any."""
        safe = finding.safe_settings is None or bool(finding.safe_runs)
        return self.settles(finding) and safe


def settings_text(settings: dict[str, str]) -> str:
    """Return settings of a system as a text in Markdown."""
    return " ".join(f"`{name}={value}`" for name, value in settings.items())


KNOWN_LOSSES: Final = (
    KnownLoss(
        code="nats-one-disk", system="nats", what="one disk loses writes", disks="one", lost_disks=1
    ),
    KnownLoss(
        code="nats-all-power",
        system="nats",
        what="several disks lose writes",
        disks="any",
        lost_disks=2,
    ),
    KnownLoss(
        code="nats-forgotten-state",
        system="nats",
        what="a consumer with one replica forgets acks or counts",
        breaks=DELIVERY,
        settings={"members": "6", "copies": "1"},
        safe={},
    ),
    KnownLoss(
        code="nats-skipped-messages",
        system="nats",
        what="the next leader of a consumer skips messages",
        breaks=DELIVERY,
        anomalies=("not-redelivered", "undelivered", "position-ahead"),
        settings={"members": "6", "servers": "2.10.25"},
        safe={},
    ),
    KnownLoss(
        code="redis-cut-off",
        system="redis",
        what="a primary is cut off",
        settings={"wait": "0"},
        on_links=True,
    ),
    KnownLoss(
        code="redis-stale",
        system="redis",
        what="a stale replica is promoted",
        settings={"wait": "1"},
    ),
    KnownLoss(
        code="kafka-kip-101",
        system="kafka",
        what="KIP-101",
        settings={"servers": "0.10.2.2", "min_isr": "2"},
        safe={},
    ),
    KnownLoss(
        code="kafka-unclean",
        system="kafka",
        what="unclean election",
        settings={"unclean": "true", "controllers": "separate"},
        logged=("output/*.txt", "UNCLEAN partition change"),
    ),
    KnownLoss(
        code="rabbitmq-stale-log", system="rabbitmq", what="a stale log", disks="one", lost_disks=1
    ),
    KnownLoss(
        code="liftbridge-fallback",
        system="liftbridge",
        what="a follower falls back to its old high watermark",
        settings={"min_isr": "2"},
        logged=("output/*.txt", "Failed to fetch last offset for leader epoch"),
        safe={},
    ),
    KnownLoss(
        code="liftbridge-one-disk",
        system="liftbridge",
        what="an empty log leads",
        settings={"min_isr": "2"},
        disks="one",
        lost_disks=1,
        safe={},
    ),
    KnownLoss(code="postgres-promotion", system="postgres", what="a standby lags as it leads"),
)
"""The rows of the table, in its order."""


def row_of(code: str) -> KnownLoss:
    return next(row for row in KNOWN_LOSSES if row.code == code)


def wanted_losses(system: str, only: tuple[str, ...] = ()) -> list[KnownLoss]:
    """Return the known losses of a system (ALL: of every system), only those with the codes `only`
    if it is not empty. Raises UsageError for a system or code without one."""
    found = [row for row in KNOWN_LOSSES if system in (ALL, row.system)]
    if not found:
        known = ", ".join(dict.fromkeys(row.system for row in KNOWN_LOSSES))
        raise UsageError(
            f"no loss is known of system '{system}' (of these one is: {known}; or {ALL})"
        )
    codes = {row.code for row in found}
    if missing := [code for code in only if code not in codes]:
        raise UsageError(f"unknown loss '{missing[0]}' (known: {', '.join(sorted(codes))})")
    return [row for row in found if not only or row.code in only]


def _is_logged(run: Path, pattern: str, text: str) -> bool:
    """Return whether a file of a run folder, matched by a pattern, contains a text."""
    return any(
        text.encode() in read_bytes(file, MOST_FILE_BYTES)
        for file in run.glob(pattern)
        if file.is_file()
    )
