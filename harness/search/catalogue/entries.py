"""The entries of the catalogue, and what is searched for each."""

from __future__ import annotations

from typing import Final

import msgspec

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
Entry = SearchTarget | KnownLoss


def subject_of(entry: Entry) -> Subject:
    """Return the protocol or system to search. Raises UsageError if it is not installed."""
    if isinstance(entry, KnownLoss):
        subject = storm_subject(entry.system, entry.settings, disks=entry.disks)
        return msgspec.structs.replace(subject, loss=entry.code)
    if entry.holds:
        return SimulatedSubject(protocol=entry.protocol, chunk=CHUNK)
    return BugSubject.of(entry)


def version_of(entry: Entry) -> str:
    """Return the version of the system, "" for a protocol. Raises UsageError likewise."""
    subject = subject_of(entry)
    return subject.find().version() if isinstance(subject, StormSubject) else ""


def entries(request: BugSearchRequest) -> list[Entry]:
    """Return the entries that a request asks for. Raises UsageError for an unknown one."""
    if request.system is not None:
        return [*wanted_losses(request.system, request.only)]
    held = correct_protocols() if request.schedules_for_correct else ()
    correct = [SearchTarget(code=name, name=name, protocol=name) for name in held]
    return [*wanted_targets(request.only), *correct]
