"""The loading of an adapter class by its name, with its settings, in any process."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.systems.adapter import MAKE_GROUPS, MEMBERS, SERVER, SERVERS, Adapter, Setting
from harness.systems.external.calls import in_words
from node.formats.errors import FloodmarkError, UsageError


class AdapterChoice(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter class, named by its `place` (`package.module:Name`, or `path/to/file.py:Name`),
    and a value for each of its settings. It can be sent to other processes."""

    place: str
    settings: Mapping[str, str] = {}

    def load(self) -> Adapter:
        """Return a new instance of the adapter. Raises UsageError if that cannot be made."""
        made = load_object(self.place)
        assert isinstance(made, type)
        try:
            adapter = made(dict(self.settings))
        except FloodmarkError:
            raise
        except Exception as error:
            raise UsageError(f"{self.place} cannot be made: {in_words(error)}") from None
        assert isinstance(adapter, Adapter)
        return adapter


def load_object(place: str) -> Any:
    """Load the object that `module:Name` or `file.py:Name` names. Without a name, the only adapter
    that the module defines. Raises UsageError."""
    module, _, name = place.rpartition(":")
    if not module:
        raise UsageError(f"system '{place}' must be written package.module:Name or file.py:Name")
    found = None
    try:
        load = _from_file if module.endswith(".py") else importlib.import_module
        found = load(module)
        return getattr(found, name) if name else _only_adapter(module, found)
    except FloodmarkError:
        raise
    except Exception as error:
        why = in_words(error)
        if isinstance(error, AttributeError) and error.obj is found and error.name == name:
            why = f"{module} has no {name}"
        # Those that come with floodmark have extras: that of rabbitmq_queues is rabbitmq.
        if isinstance(error, ModuleNotFoundError) and module.startswith("harness.systems."):
            extra = module.rpartition(".")[2].partition("_")[0]
            why += f": pip install '.[{extra}]' in a clone of floodmark"
        raise UsageError(f"system '{place}' cannot be loaded: {why}") from None


def _only_adapter(place: str, module: Any) -> Any:
    """Return the adapter that a module defines itself. Raises UsageError unless there is exactly
    one."""
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Adapter)
        and each.__module__ == module.__name__
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "no adapter"
        raise UsageError(f"{place} has {names}: name the class, as in {place}:Name")
    return found[0]


def _from_file(place: str) -> Any:
    """Return a file as a module; others in its folder can be imported by it."""
    path = Path(place).absolute()
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    name = f"floodmark_system_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", "") == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def settings_of(adapter: type[Adapter]) -> tuple[Setting, ...]:
    """Return the settings of an adapter, `server` and `servers` if it has an executable, and
    `members` if it can have a group; if it cannot be read, three members unless another number is
    given."""
    members = MEMBERS if adapter.writes("read") else replace(MEMBERS, default="3")
    of_groups = (members,) if adapter.writes(*MAKE_GROUPS) else ()
    return (*adapter.settings, *of_groups, *((SERVER, SERVERS) if adapter.binary else ()))


def complete_settings(
    owner: str, known: tuple[Setting, ...], given: Mapping[str, str]
) -> dict[str, str]:
    """Return a value for every setting; for `server` and `servers` only if they are given. Raises
    UsageError for an unknown setting and for a value that it does not allow."""
    names = {setting.name: setting for setting in known}
    for name, value in given.items():
        if name not in names:
            there = ", ".join(names) or "none"
            raise UsageError(f"system '{owner}' has no setting '{name}' (it has: {there})")
        names[name].check(value)
    found = {setting.name: given.get(setting.name, setting.default) for setting in known}
    unless_empty = (SERVER.name, SERVERS.name)
    return {name: value for name, value in found.items() if value or name not in unless_empty}
