"""The entries of the catalogue: known bugs, promises, known losses, and protocols that hold."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.formats.finding import Finding
from harness.search.catalogue.known_bugs import SearchTarget, correct_protocols, wanted_targets
from harness.search.catalogue.known_losses import KnownLoss, wanted_losses
from harness.search.requests import BugSearchRequest
from harness.search.run import storm_subject
from harness.search.worlds.known_bug import BugSubject
from harness.search.worlds.real import StormSubject
from harness.search.worlds.simulated import SimulatedSubject
from harness.search.worlds.subject import Subject

CHUNK: Final = 250
"""Schedules of a correct protocol that are tried in one job."""


class Entry:
    """A row of the catalogue: a known bug, a promise that a faulty protocol breaks, or (without a
    target) a protocol that keeps every promise. `code` is unique, `what` is broken, `note` explains
    it further. `holds`: nothing must be found."""

    def __init__(self, protocol: str, target: SearchTarget | None = None) -> None:
        self.holds = target is None
        self.code = protocol if target is None else target.code
        self.what = "" if target is None else f"{target.breaks} ({target.name})"
        self.note = f"Seen in: {target.source}" if target is not None and target.source else ""
        self._protocol = protocol
        self._target = target

    def subject(self) -> Subject:
        """Return the protocol or system to search. Raises UsageError if it is not installed."""
        if self._target is None:
            return SimulatedSubject(protocol=self._protocol, chunk=CHUNK)
        return BugSubject.of(self._target)

    def version(self) -> str:
        """Return the version of the system, "" for a protocol. Raises UsageError likewise."""
        return ""

    def on(self, version: str) -> str:
        """Return the system of this version, or the protocol, as a text."""
        return f"{self._protocol} {version}".rstrip()

    def shows(self, finding: Finding) -> bool:
        return True

    def settles(self, finding: Finding) -> bool:
        """Return whether no other finding is looked for after a shrunk one."""
        return True

    def is_complete(self, finding: Finding) -> bool:
        """Return whether a finding has all that the table shows, so that no other is shrunk."""
        return False


class LossEntry(Entry):
    """A known loss of a third-party system."""

    def __init__(self, row: KnownLoss) -> None:
        super().__init__(row.system)
        self.holds, self.code, self.what = False, row.code, row.loss
        self.note = f"With: {settings_text(row.settings)}" if row.settings else ""
        self._row = row

    def subject(self) -> StormSubject:
        row = self._row
        subject = storm_subject(row.system, row.settings, disks=row.disks)
        return msgspec.structs.replace(subject, loss=row.code)

    def version(self) -> str:
        return self.subject().find().version()

    def shows(self, finding: Finding) -> bool:
        return self._row.is_found(finding)

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


def entries(request: BugSearchRequest) -> list[Entry]:
    """Return the entries that a request asks for. Raises UsageError for an unknown one."""
    if request.system is not None:
        return [LossEntry(row) for row in wanted_losses(request.system, request.only)]
    found = [Entry(target.protocol, target) for target in wanted_targets(request.only)]
    if request.schedules_for_correct:
        found += [Entry(name) for name in correct_protocols()]
    return found
