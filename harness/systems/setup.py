"""The system on which a schedule runs, with its settings and the forms of its links and disks.

`setup_of` alone decides which system a folder means. A folder may name an installed system. The
code of any other system is loaded only if `--system` names it too, and a program that a setting
names is started only if `--set` does: a file must not choose code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from harness.formats.finding import DRAWN, REAL, RECORD, SCHEDULE, FoundOn
from harness.formats.run_info import SystemVersion
from harness.systems import registry
from harness.systems.adapter import SERVER, SERVERS
from harness.systems.disks import check_disks
from harness.systems.interface import System
from nemesis.faults import kind_of
from nemesis.faults.link_fault import LinkFault
from nemesis.formats.schedule import Schedule
from node.formats.errors import UsageError
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable, read_file

_RUN: Final = "run.json"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A system by its name, the values given for its settings, and the forms of its links and its
    disks, "" for the usual one."""

    system: str = registry.DEFAULT
    settings: dict[str, str] = {}
    links: str = ""
    disk: str = ""

    def find(self) -> System:
        """Return the system with its settings. Raises UsageError."""
        return registry.find(self.system, self.settings)

    def resolved(self, schedule: Schedule) -> Resolved:
        """Return what a schedule runs on. Raises UsageError if it cannot."""
        system = self.find()
        on = Resolved(
            system,
            system.link_form(self.links or None),
            system.disk_form(self.disk or None, kinds_of(schedule)),
        )
        on.check(schedule)
        return on


class Resolved(NamedTuple):
    """A system with one of its `link_forms` and one of its `disk_forms`."""

    system: System
    links: str
    disk: str

    def check(self, schedule: Schedule) -> None:
        """Refuse a schedule with faults that cannot be carried out here. Raises UsageError."""
        self.system.check(schedule)
        abilities = self.system.link_abilities(self.links)
        for index, fault in enumerate(schedule.faults):
            kind = kind_of(fault)
            if not isinstance(kind, LinkFault):
                continue
            direct = "the nodes are connected directly"
            why = direct if abilities is None else kind.why_impossible(abilities)
            if why:
                raise UsageError(
                    f"--links {self.links}: fault {index} ({fault.what}) is on links: {why}"
                )
        check_disks(schedule, self.disk)


def kinds_of(schedule: Schedule) -> tuple[str, ...]:
    """Return the kinds of faults in a schedule, each once."""
    return tuple(dict.fromkeys(fault.what for fault in schedule.faults))


def setup_of(
    path: Path | None,
    system: str | None = None,
    settings: Mapping[str, str] | None = None,
    links: str | None = None,
    disk: str | None = None,
) -> Setup:
    """Return the setup of the run or finding at `path` (its folder, or a schedule in there), except
    for what is given; anywhere else that of `system`, by default our brokers.

    The rest of a folder's setup is used only if `system` is the folder's own. Raises UsageError if
    the folder's record cannot be read, and if it names a system by its place, or a program, and
    `system` or `settings` do not confirm that."""
    record = _record_of(path)
    setup = Setup() if record is None else _recorded(record)
    if system is not None:
        same = record is not None and _is_same(system, setup.system)
        setup = msgspec.structs.replace(setup if same else Setup(), system=system)
    elif registry.is_a_place(setup.system):
        raise UsageError(
            f"{record} names system '{setup.system}', which is not an installed one: to "
            f"load its code, confirm it with --system {shlex.quote(setup.system)}"
        )
    given = settings or {}
    if unconfirmed := {name: value for name, value in setup.settings.items() if name not in given}:
        is_place = registry.is_a_place(setup.system)
        programs = (
            dict.fromkeys((SERVER.name, SERVERS.name), "")
            if is_place
            else registry.find(setup.system).programs
        )
        for name, value in unconfirmed.items():
            if value != programs.get(name, value):
                raise UsageError(
                    f"{record} names a program, '{value}': to start it, confirm it with "
                    f"--set {shlex.quote(f'{name}={value}')}"
                )
    return msgspec.structs.replace(
        setup,
        settings={**setup.settings, **given},
        links=setup.links if links is None else links,
        disk=setup.disk if disk is None else disk,
    )


class _OfRun(msgspec.Struct):
    """The part of run.json that says on what the run was made."""

    system: SystemVersion = SystemVersion()


def _record_of(path: Path | None) -> Path | None:
    """Return the file that says on what the run or finding at `path` was made, None without one."""
    if path is None or not path.exists():
        return None
    if path.is_file() and path.name not in (SCHEDULE, DRAWN, REAL):
        return None
    folder = path if path.is_dir() else path.parent
    return next((folder / name for name in (_RUN, RECORD) if (folder / name).is_file()), None)


def _recorded(record: Path) -> Setup:
    try:
        if record.name == _RUN:
            run = read_file(record, _OfRun).system
            return Setup(system=run.name, settings=run.settings, links=run.links, disk=run.disk)
        found = read_file(record, FoundOn)
    except (OSError, Unreadable) as error:
        raise UsageError(
            f"{record}: cannot be read, so the system of this run is not known: {reason(error)}"
        ) from None
    if found.world == "simulated":
        return Setup()
    return Setup(system=found.subject, settings=found.settings, links=found.links, disk=found.disk)


def _is_same(one: str, other: str) -> bool:
    """Return whether two names mean the same system; its file may be in another folder."""
    (file, name), (other_file, other_name) = _parts(one), _parts(other)
    return file == other_file and (name == other_name or "" in (name, other_name))


def _parts(system: str) -> tuple[str, str]:
    """Return the file or module of a system without its folder, and the name in it, "" for none."""
    if ":" not in system or system.endswith(".py"):
        return Path(system).name, ""
    place, _, name = system.rpartition(":")
    return Path(place).name, name
