"""The list of the systems under test, for `floodmark systems`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from harness.systems import registry
from node.formats.errors import FloodmarkError


class ListedSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A system; `missing` says what is not installed and how to install it, "" if it can be run."""

    system: str
    version: str = ""
    summary: str = ""
    missing: str = ""
    faults: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


def listed() -> Iterator[ListedSystem]:
    """Yield all systems, also those that are not installed."""
    for name in registry.names():
        try:
            system = registry.find(name)
        except FloodmarkError as error:
            yield ListedSystem(system=name, missing=str(error))
            continue
        try:
            version, missing = system.version(), ""
        except FloodmarkError as error:
            version, missing = "", str(error)
        yield ListedSystem(
            system=name,
            version=version,
            summary=system.summary,
            missing=missing,
            faults=tuple(system.faults),
            links=tuple(system.link_forms),
            settings=tuple(system.setting_help()),
        )


def as_text(one: ListedSystem) -> str:
    """Return a system in a few lines."""
    lines = [f"{one.system} {one.version}".rstrip() + f": {one.summary or 'not here'}"]
    if one.missing:
        lines.append(f"not here: {one.missing}" if one.summary else one.missing)
    if one.summary:
        lines += [f"faults: {', '.join(one.faults)}", f"links: {', '.join(one.links)}"]
        lines += [f"--set {line}" for line in one.settings]
    return "\n  ".join(lines)
