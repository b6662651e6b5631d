"""What the options of commands take: bounded numbers, and paths that can be read or written.

Every number and every path of a command line has one of these types, so that a wrong one is one
sentence with the name of its option, before anything is done (`tests/harness/cli/test_values.py`
looks at all options of all commands).
"""

from __future__ import annotations

import math
import os
import re
import stat
from pathlib import Path
from typing import Any, Final, NoReturn

import typer

from node.formats.errors import UsageError
from node.formats.files import why_not_writable

WEEK_S: Final = 7 * 24 * 3600
_LONGEST_SHOWN: Final = 120


class ValueKind:
    """A kind of value of an option or argument."""

    def convert(self, text: str, option: str) -> Any:
        """The value that is written as `text` after `option`. Raises UsageError."""
        raise NotImplementedError


def taking(kind: ValueKind) -> dict[str, Any]:
    """The arguments of `typer.Option` or `typer.Argument` for one whose values are of a kind."""

    def convert(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
        if value is None:
            return None
        name = str(param.name)
        option = max(param.opts, key=len) if param.param_type_name == "option" else name.upper()
        if isinstance(value, list | tuple):
            return [kind.convert(each, option) for each in value]
        return kind.convert(value, option)

    return {"parser": str, "callback": convert}


class Number(ValueKind):
    """A finite number from `least` to `most`; with `above`, `least` itself is too small."""

    noun = "number"

    def __init__(self, least: float, most: float, *, above: bool = False) -> None:
        self.least, self.most, self.above = least, most, above

    def convert(self, text: str, option: str) -> float:
        """The number. Raises UsageError."""
        try:
            number = self.parse(text)
        except (ValueError, OverflowError):
            raise UsageError(f"{option} must be a {self.noun}, not '{_shown(text)}'") from None
        if number < self.least or (self.above and number == self.least):
            bound = "above" if self.above else "at least"
            raise UsageError(f"{option} must be {bound} {_plain(self.least)}, not {_shown(text)}")
        if number > self.most:
            raise UsageError(f"{option} must be at most {_plain(self.most)}, not {_shown(text)}")
        return number

    def parse(self, text: str) -> float:
        """A finite number. Raises ValueError."""
        number = float(text)
        if not math.isfinite(number):
            raise ValueError
        return number


class Whole(Number):
    """A whole number from `least` to `most`; 1e6 is one too."""

    noun = "whole number"

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least, most)

    def parse(self, text: str) -> int:
        """A whole number. Raises ValueError."""
        try:
            return int(text)
        except ValueError:
            number = super().parse(text)
            if number != int(number):
                raise
            return int(number)


class HeapSize(ValueKind):
    """A size of memory in Java's spelling, such as 3g; "" for none."""

    def convert(self, text: str, option: str) -> str:
        """The size. Raises UsageError."""
        if text and re.fullmatch(r"[1-9][0-9]{0,6}[kmgKMG]", text) is None:
            raise UsageError(f"{option} must be written like 512m or 3g, not '{_shown(text)}'")
        return text


SEED: Final = Whole(-(2**62), 2**62)
"""As many as fit the files."""
CORES: Final = Whole(0, 1024)
WORKERS: Final = Whole(1, 1024)


class _PathKind(ValueKind):
    def convert(self, text: str, option: str) -> Path:
        """The path. Raises UsageError."""
        if not text:
            raise UsageError(f"{option} must not be empty")
        path = Path(text)
        try:
            self.examine(path, option)
        except OSError as error:
            raise UsageError(f"{_shown(path)}: cannot be used: {error.strerror}") from None
        return path

    def examine(self, path: Path, option: str) -> None:
        """Raises UsageError for a path that cannot be used, OSError for one that nobody can."""
        raise NotImplementedError


class Readable(_PathKind):
    """A file or folder to be read. The command itself says what is missing where nothing is there:
    it may be the name of something."""

    def examine(self, path: Path, option: str) -> None:
        """Refuse what is there and cannot be read."""
        mode = _mode(path)
        if mode is None:
            return
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise UsageError(f"{_shown(path)}: neither a file nor a folder")
        if not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
            raise UsageError(f"{_shown(path)}: cannot be read: Permission denied")


class ExistingFolder(Readable):
    """A folder that is there."""

    def examine(self, path: Path, option: str) -> None:
        """Refuse what is no folder."""
        super().examine(path, option)
        mode = _mode(path)
        if mode is None:
            _refuse(option, f"must be a folder, and '{_shown(path)}' does not exist")
        if not stat.S_ISDIR(mode):
            _refuse(option, f"must be a folder, and '{_shown(path)}' is a file")


class WritableFolder(_PathKind):
    """A folder to write into, made when it is missing."""

    def examine(self, path: Path, option: str) -> None:
        """Refuse a folder in which nothing could be made."""
        if why := why_not_writable(path):
            raise UsageError(
                f"{_shown(path)}: cannot be written: {why}; choose another folder with {option}"
            )


class WritableFile(_PathKind):
    """A file to be written, in a folder that is there."""

    def examine(self, path: Path, option: str) -> None:
        """Refuse a folder, and a file in a folder that is missing or cannot be written."""
        if path.is_dir():
            _refuse(option, f"must be a file, and '{_shown(path)}' is a folder")
        if not path.parent.is_dir():
            _refuse(option, f"must be in a folder, and '{_shown(path.parent)}' is none")
        if why := why_not_writable(path.parent):
            raise UsageError(f"{_shown(path)}: cannot be written: {why}")


def _mode(path: Path) -> int | None:
    """What kind of file is there; None where nothing is. Raises OSError."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _refuse(option: str, why: str) -> NoReturn:
    raise UsageError(f"{option} {why}")


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _plain(number: float) -> str:
    """A number as a person writes it: 604800, 0.5."""
    return str(int(number)) if number == int(number) else str(number)
