"""The only place that decodes JSON: it may come from anybody.

Files, lines and messages outlive their writer, are copied, cut and edited. A reader names the form
that it needs (a type that `msgspec` decodes to) and gets a value of it, or `Unreadable` with the
reason. Size and depth have bounds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import IO, Any, Final, Generic, TypeVar

import msgspec

from node.formats.errors import FloodmarkError
from node.formats.reading import open_file

MOST_DEPTH: Final = 100
"""Lists and objects within each other."""
MOST_LINE_BYTES: Final = 16 << 20
MOST_FILE_BYTES: Final = 256 << 20
"""Of a file that is one JSON value. A file of lines may be of any length."""
MOST_OPEN_BYTES: Final = 16 << 20
"""Of a file that is decoded to whatever is in it, which may take thirty times its size."""
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

Form = TypeVar("Form")


class Unreadable(FloodmarkError):
    """Text that is not JSON, or not of the form that is needed; the message is the reason."""

    exit_code = 64


class WrongForm(Unreadable):
    """Text that is JSON, but not of the form that is needed."""


class JsonReader(Generic[Form]):
    """A decoder of texts of one form, for example the lines of a history."""

    def __init__(
        self, form: type[Form], most_bytes: int | None = None, *, keys_once: bool = False
    ) -> None:
        """Prepare for texts of `form`, a type that `msgspec` decodes to; texts longer than
        `most_bytes` (None: a line's) are refused, and with `keys_once` objects that have a key
        twice."""
        self._decoder: msgspec.json.Decoder[Form] = msgspec.json.Decoder(form)
        self._most_bytes = MOST_LINE_BYTES if most_bytes is None else most_bytes
        self._keys_once = keys_once
        self._sound: set[bytes] = set()

    def decode(self, text: bytes | str) -> Form:
        """Return the value of a text. Raises Unreadable."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        if len(data) > MOST_DEPTH:
            self._check_bounds(data)
        try:
            found = self._decoder.decode(data)
            if self._keys_once:
                json.loads(data, object_pairs_hook=_refuse_double)
            return found
        except msgspec.ValidationError as error:
            raise WrongForm(_reason(error)) from None
        except (msgspec.DecodeError, ValueError) as error:
            raise Unreadable(_reason(error)) from None
        except RecursionError:
            raise Unreadable(_TOO_DEEP) from None

    def decode_lines(self, block: bytes) -> list[Form]:
        """Return the values of all lines of a block. Raises Unreadable if one of them is not of
        this form; the caller then decodes them one by one to find it."""
        try:
            found = self._decoder.decode_lines(block)
            if self._keys_once:
                self._refuse_doubles(block)
            return found
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Unreadable(_reason(error)) from None

    def _refuse_doubles(self, block: bytes) -> None:
        """Refuse lines with an object that has a key twice. Of lines that differ only in digits one
        is examined, if its keys differ in more than digits. Raises Unreadable."""
        shapes = block.translate(None, delete=_DIGITS).splitlines()
        if self._sound.issuperset(shapes):
            return
        for line, shape in zip(block.splitlines(), shapes, strict=True):
            if shape not in self._sound and _has_one_shape(line):
                if len(self._sound) >= _MOST_SHAPES:
                    self._sound.clear()
                self._sound.add(shape)

    def _check_bounds(self, data: bytes) -> None:
        if len(data) > self._most_bytes:
            raise Unreadable(
                f"it has {len(data):,} bytes, and at most {self._most_bytes:,} are read"
            )
        if data.count(b"[") + data.count(b"{") > MOST_DEPTH and _is_too_deep(data):
            raise Unreadable(_TOO_DEEP)


_TOO_DEEP: Final = f"it is nested deeper than {MOST_DEPTH} levels"
_DIGITS: Final = b"0123456789"
_NO_DIGITS: Final = dict.fromkeys(_DIGITS)
_MOST_SHAPES: Final = 10_000
_MOST_REASON: Final = 300
_PIECE_BYTES: Final = 1 << 20
_READERS: Final[dict[Any, JsonReader[Any]]] = {}


def decode(text: bytes | str, form: type[Form]) -> Form:
    """Return the value of a whole file or message. Raises Unreadable."""
    reader = _READERS.get(form)
    if reader is None:
        reader = _READERS[form] = JsonReader(form, MOST_FILE_BYTES)
    value: Form = reader.decode(text)
    return value


def read_bytes(path: Path, most_bytes: int = MOST_OPEN_BYTES, *, follow: bool = False) -> bytes:
    """Return the contents of a file that is one JSON value; one that a person named may be a link
    (`follow`). Raises OSError, and Unreadable if it has more than `most_bytes`."""
    text = b""
    with open_file(path, follow=follow) as file:
        # Memory for what is there, and not for the most that is allowed.
        while len(text) <= most_bytes and (more := file.read(_PIECE_BYTES)):
            text += more
    if len(text) > most_bytes:
        raise Unreadable(f"it has more than {most_bytes:,} bytes")
    return text


def read_file(path: Path, form: type[Form], *, follow: bool = False) -> Form:
    """Return the value of a file, as `read_bytes` reads it. Raises OSError, Unreadable."""
    return decode(read_bytes(path, MOST_FILE_BYTES, follow=follow), form)


def ended(part: bytes, file: IO[bytes]) -> bytes:
    """Return `part`, the last bytes read from `file`, so that it ends with a whole line. If its
    last line is too long, the rest of that line is read and dropped, and a newline is added. Raises
    OSError."""
    dropped = b""
    while not part.endswith(b"\n") and not dropped.endswith(b"\n"):
        rest = file.readline(MOST_LINE_BYTES)
        if not rest:
            break
        dropped = rest
    return part + b"\n" if dropped else part


def _has_one_shape(line: bytes) -> bool:
    """Return whether no line that differs from this one in digits only has a key twice. Raises
    Unreadable if this one has."""
    alike = b"\\" in line

    def examine(pairs: list[tuple[str, Any]]) -> None:
        nonlocal alike
        _refuse_double(pairs)
        alike |= len({key.translate(_NO_DIGITS) for key, _ in pairs}) != len(pairs)

    json.loads(line or b"0", object_pairs_hook=examine)
    return not alike


def _refuse_double(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object that has a key twice. Raises Unreadable."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise Unreadable("an object has a key twice")


def _reason(error: Exception) -> str:
    """Return the message of a decoder, cut short: it may quote a name of any length."""
    said = str(error)
    return said if len(said) <= _MOST_REASON else f"{said[:_MOST_REASON]}..."


def _is_too_deep(data: bytes) -> bool:
    """Return whether lists and objects are too deep within each other, if it is JSON at all."""
    brackets = _TEXT.sub(b"", data).translate(None, delete=_NO_BRACKETS)
    for _ in range(MOST_DEPTH):
        # Takes away what is innermost.
        fewer = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(fewer) == len(brackets):
            return False
        brackets = fewer
    return bool(brackets)
