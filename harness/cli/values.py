"""Kinds of the values of options: bounded numbers, and paths that can be read or written.

Every value is checked by its kind before a command begins, and a wrong one gives one sentence with
the name of its option (`tests/harness/cli/test_values.py` covers all options of all commands)."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, get_args, get_origin

from node.formats.errors import UsageError
from node.formats.files import why_not_writable
from node.formats.host_errors import NO_PERMISSION, reason

_LONGEST_SHOWN: Final = 120
_UNIT_S: Final = {"h": 3600, "m": 60, "s": 1}
_KIB: Final = 1 << 10
_BYTES: Final = {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}
_BYTES_BY_TWO: Final = {"KiB": _KIB, "MiB": _KIB**2, "GiB": _KIB**3}
_SECONDS: Final = {"ms": 0.001, **_UNIT_S}
UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "s": _SECONDS,
    "ms": {unit: seconds * 1000 for unit, seconds in _SECONDS.items()},
    "B": {**_BYTES, **_BYTES_BY_TWO},
    "MiB": {unit: size / _KIB**2 for unit, size in {**_BYTES, **_BYTES_BY_TWO}.items()},
}
"""By the unit of an option: what the units are worth in which its value may be written instead."""
_WITH_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)([a-zA-Z]+)")
_DURATION: Final = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(_UNIT_S)}])")


class ValueKind:
    """A kind of value, with a `metavar` for the help; this base class takes any text."""

    metavar = "TEXT"

    def convert(self, text: str, option: str) -> Any:
        """Return the value that `text`, given for `option`, means. Raises UsageError."""
        return text

    def shown(self, value: Any) -> str:
        """Return a value in the spelling of the command line."""
        return str(value)


class OneOf(ValueKind):
    """One of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self.metavar = "|".join(words)

    def convert(self, text: str, option: str) -> str:
        if text not in self._words:
            _refuse(option, f"must be {' or '.join(self._words)}, and '{_shown(text)}' is neither")
        return text


class FormattedText(ValueKind):
    """A text of one form, with examples of it."""

    def __init__(self, pattern: str, such_as: str) -> None:
        self._pattern, self._such_as = re.compile(pattern), such_as

    def convert(self, text: str, option: str) -> str:
        if self._pattern.fullmatch(text) is None:
            _refuse(option, f"must be such as {self._such_as}, not '{_shown(text)}'")
        return text


class Number(ValueKind):
    """A finite number from `least` to `most`; with `above`, `least` itself is too small."""

    noun, metavar = "number", "NUMBER"

    def __init__(self, least: float, most: float, *, above: bool = False, unit: str = "") -> None:
        self.least, self.most, self.above = least, most, above
        self.units = UNITS.get(unit, {})

    def convert(self, text: str, option: str) -> float:
        """Return the number that `text` means. Raises UsageError if it is none or out of bounds."""
        try:
            number = self.parse(text)
        except (ValueError, OverflowError):
            raise UsageError(f"{option} must be a {self.noun}, not '{_shown(text)}'") from None
        if number < self.least or (self.above and number == self.least):
            bound = "above" if self.above else "at least"
            raise UsageError(
                f"{option} must be {bound} {self.shown(self.least)}, not {_shown(text)}"
            )
        if number > self.most:
            raise UsageError(
                f"{option} must be at most {self.shown(self.most)}, not {_shown(text)}"
            )
        return number

    def parse(self, text: str) -> float:
        """Return a finite number. Raises ValueError."""
        if self.is_measured(text):
            amount, unit = _WITH_UNIT.findall(text)[0]
            return round(float(amount) * self.units[unit], 9)
        number = float(text)
        if not math.isfinite(number):
            raise ValueError
        return number

    def is_measured(self, text: str) -> bool:
        """Return whether a text is a number with one of the units that are taken here."""
        written = _WITH_UNIT.fullmatch(text)
        return written is not None and written[2] in self.units

    def shown(self, value: float) -> str:
        """Return a number in its shortest spelling: 604800, 0.5."""
        return str(int(value)) if value == int(value) else str(value)


class Whole(Number):
    """A whole number from `least` to `most`; 1e6 is one too."""

    noun = "whole number"

    def parse(self, text: str) -> int:
        """Return a whole number. Raises ValueError."""
        try:
            return int(text)
        except ValueError:
            number = super().parse(text)
            if number != int(number) and not self.is_measured(text):
                raise
            return int(number)


class Duration(Number):
    """A length of time in seconds, written 90s, 20m, 8h or 1h30m."""

    noun, metavar = "time such as 90s, 20m or 1h30m", "TIME"

    def parse(self, text: str) -> float:
        """Return the seconds. Raises ValueError."""
        parts = _DURATION.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError
        return sum(float(number) * _UNIT_S[unit] for number, unit in parts)

    def shown(self, value: float) -> str:
        """Return the seconds in as few units as possible."""
        if not value:
            return "0s"
        unit = next((unit for unit, size in _UNIT_S.items() if value % size == 0), "s")
        return f"{super().shown(value / _UNIT_S[unit])}{unit}"


class NameAndValue(ValueKind):
    """A setting, written name=value."""

    metavar = "NAME=VALUE"


class _PathKind(ValueKind):
    metavar = "PATH"

    def convert(self, text: str, option: str) -> Path:
        """Return the path. Raises UsageError."""
        if not text:
            raise UsageError(f"{option} must not be empty")
        path = Path(text)
        try:
            self.examine(path, option)
        except OSError as error:
            raise UsageError(f"{_shown(path)}: cannot be used: {reason(error)}") from None
        return path

    def examine(self, path: Path, option: str) -> None:
        """Check the path. Raises UsageError if unusable, OSError if impossible."""
        raise NotImplementedError


class Readable(_PathKind):
    """A file or folder to be read. A path that does not exist passes, because it may be the name of
    something, such as a ready-made schedule; the command itself reports what is missing."""

    def examine(self, path: Path, option: str) -> None:
        """Refuse a file or folder that cannot be read."""
        mode = _mode(path)
        if mode is None:
            return
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise UsageError(f"{_shown(path)}: neither a file nor a folder")
        if not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
            raise UsageError(f"{_shown(path)}: cannot be read: {NO_PERMISSION}")


class WritableFolder(_PathKind):
    """A folder to write into, made when it is missing."""

    def examine(self, path: Path, option: str) -> None:
        """Refuse a folder in which no file could be made."""
        if why := why_not_writable(path):
            raise UsageError(
                f"{_shown(path)}: cannot be written: {why}; choose another folder with {option}"
            )


class WritableFile(_PathKind):
    """A file to be written, in a folder that exists already."""

    def examine(self, path: Path, option: str) -> None:
        """Refuse a folder, a FIFO, and a file that cannot be written or whose folder cannot."""
        mode = _mode(path)
        if mode is not None and not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "none"
            _refuse(option, f"must be a file, and '{_shown(path)}' is {kind}")
        if mode is not None and not os.access(path, os.W_OK):
            raise UsageError(f"{_shown(path)}: cannot be written: {NO_PERMISSION}")
        if not path.parent.is_dir():
            _refuse(option, f"must be in a folder, and '{_shown(path.parent)}' is none")
        if why := why_not_writable(path.parent):
            raise UsageError(f"{_shown(path)}: cannot be written: {why}")


_PATHS: Final[dict[str, type[_PathKind]]] = {
    "readable": Readable,
    "writable file": WritableFile,
    "writable folder": WritableFolder,
}


def kind_of(hint: Any, about: Mapping[str, Any], extra: Mapping[str, str]) -> ValueKind:
    """Return the kind of a field's values, by its type and the bounds and `extra` of `Meta`."""
    if get_origin(hint) is dict:
        return NameAndValue()
    if hint is Path:
        return _PATHS[extra["path"]]()
    if hint is str:
        return (
            FormattedText(about["pattern"], extra["such as"]) if "pattern" in about else ValueKind()
        )
    if get_origin(hint) is Literal:
        return OneOf(get_args(hint))
    number = Duration if extra.get("written") == "duration" else Whole if hint is int else Number
    above = "gt" in about
    least = about["gt"] if above else about["ge"]
    return number(least, about["le"], above=above, unit=extra.get("unit", ""))


def _mode(path: Path) -> int | None:
    """Return the mode of a file, None if there is none. Raises OSError."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _refuse(option: str, why: str) -> NoReturn:
    raise UsageError(f"{option} {why}")


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
