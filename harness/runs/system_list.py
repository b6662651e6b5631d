"""The list of the systems under test, for `floodmark systems`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec

from harness.systems import registry
from harness.systems.external.links import KERNEL_LINKS
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError


class ListedSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A system; `missing` says what is not installed and how to install it, "" if it can be run;
    `no_kernel_links` says why `--links kernel` is impossible here."""

    system: str
    version: str = ""
    summary: str = ""
    missing: str = ""
    faults: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    no_kernel_links: str = ""
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
            no_kernel_links=_why_no_kernel_links() if KERNEL_LINKS in system.link_forms else "",
            settings=tuple(system.setting_help()),
        )


@cache
def _why_no_kernel_links() -> str:
    """Return why links of the kernel are impossible on this machine, "" if they are not."""
    try:
        namespaces.check_possible()
    except FloodmarkError as error:
        return str(error)
    return ""


def as_text(one: ListedSystem) -> str:
    """Return a system in a few lines."""
    lines = [f"{one.system} {one.version}".rstrip() + f": {one.summary or 'not here'}"]
    if one.missing:
        lines.append(f"not here: {one.missing}" if one.summary else one.missing)
    if one.summary:
        lines += [f"faults: {', '.join(one.faults)}", f"links: {', '.join(one.links)}"]
        lines += [f"not here: {one.no_kernel_links}"] if one.no_kernel_links else []
        lines += [f"--set {line}" for line in one.settings]
    return "\n  ".join(lines)
