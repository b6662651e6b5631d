"""Reading of EDN (extensible data notation), the text form of Jepsen's histories, form by form.

Keywords, symbols and strings all become `str`: a keyword without its colon, a string with its
quotes, so that `:x` and `"x"` stay two keys. Vectors, lists and sets become lists; of a tagged
value the tag is dropped, and so is metadata. A nested collection as a key equals no other key. EDN
forbids a map that has a key twice: it becomes a `Doubled`, which no reader may use. Nothing
recurses, so no input is too deep. A broken form is reported with its line, and reading goes on with
the next one.

Almost all lines are one map of words, numbers, vectors and maps. Such a line is rewritten as JSON,
by a template for all lines that differ in their numbers only, and decoded as that, which is several
times faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, groupby
from typing import Any, Final

import msgspec

from checker.ingest.lines import Block
from checker.ingest.source import decoded
from node.formats.json_input import JsonReader, Unreadable

_TOKEN: Final = re.compile(
    r"""(?:[\s,]|;[^\n]*+)*+
    ( \#\{ | \#_ | [\[\](){}]
    | "(?:[^"\\]++|\\.)*+"
    | \\(?:[a-zA-Z0-9]+|.)
    | \#?[^\s,\[\](){}";\\]+
    | \#(?=")
    )""",
    re.VERBOSE | re.DOTALL,
)
_BLANK: Final = re.compile(r"(?:[\s,]|;[^\n]*+)*+")
_INT: Final = re.compile(r"[+-]?[0-9]+N?")
_FLOAT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?M?")
_OPEN: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_WORDS: Final = {"nil": None, "true": True, "false": False}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_DIGITS: Final = 40
_LONG: Final = 1024
# A new operation begins a line with one of these; so a form that never ends costs only itself.
_BEGINS: Final = ("{", "#")

_NUMBER: Final = re.compile(rb"([0-9]++)")
_FIRST_PLACE: Final = 10**17
_NUMBER_AS_KEY: Final = b'"%b":'
_TOO_LONG: Final = b"0" * 19
_ZERO_FIRST: Final = re.compile(rb"[{,\s+]0[0-9]")
_TO_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_TO_SPACES: Final = bytes(c if c in b"0123456789" else 32 for c in range(256))
_json: Final = JsonReader(Any, keys_once=True)


class EdnError(ValueError):
    """An error: a text is not EDN; the message says why."""


class Doubled(dict[Any, Any]):
    """A map that has a key twice, with the last value of each."""


@dataclass(frozen=True, eq=False)
class Collection:
    """A collection in the place of a key."""

    items: Any


class Unfinished(EdnError):
    """An error: a text ends inside a form."""


@dataclass
class _Open:
    """A collection whose end has not come; `skip` is how many of its next items to drop."""

    opening: str
    items: list[Any] = field(default_factory=list)
    skip: int = 0


def parse(text: str) -> list[Any]:
    """Return all forms of a text. Raises EdnError; Unfinished if more text might complete it."""
    top = _Open("")
    stack = [top]
    place = 0
    while match := _TOKEN.match(text, place):
        token, place = match.group(1), match.end()
        if token in _OPEN:
            stack.append(_Open(token))
        elif token == "#_":
            stack[-1].skip += 1
        elif token in "])}":
            done = stack.pop() if len(stack) > 1 else None
            if done is None or _OPEN[done.opening] != token:
                raise EdnError(f"'{token}' closes nothing")
            _add(stack[-1], _collection(done))
        elif token == "^":
            stack[-1].skip += 1
        elif token[:2] == "##" or token[0] not in "#^":
            _add(stack[-1], _atom(token))
    rest = text[_BLANK.match(text, place).end() :]  # type: ignore[union-attr]
    if len(stack) > 1 or rest.startswith('"'):
        raise Unfinished("a form or string is not closed")
    if rest:
        raise EdnError(f"'{rest[:10]}' is no EDN")
    return top.items


def _add(into: _Open, item: Any) -> None:
    if into.skip:
        into.skip -= 1
    else:
        into.items.append(item)


def _collection(done: _Open) -> Any:
    if done.opening != "{":
        return done.items
    if len(done.items) % 2:
        raise EdnError("a map has a key without a value")
    keys = [_key(item) for item in done.items[::2]]
    made = dict(zip(keys, done.items[1::2], strict=True))
    return made if len(made) == len(keys) else Doubled(made)


def _key(item: Any) -> Any:
    """Return an item in the place of a key."""
    if not isinstance(item, list | dict):
        return item
    try:
        hash(key := tuple(item))
    except TypeError:
        return Collection(item)
    return Collection(item) if isinstance(item, dict) else key


def _atom(token: str) -> Any:
    if token[0] == '"':
        text = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), token[1:-1], flags=re.DOTALL)
        return f'"{text}"'
    if token[0] == ":":
        return token[1:]
    if token in _WORDS:
        return _WORDS[token]
    if len(token) <= _DIGITS and _INT.fullmatch(token):
        return int(token.rstrip("N"))
    if _FLOAT.fullmatch(token):
        return float(token.rstrip("M"))
    return token


def _templates(text: bytes, lines: Sequence[bytes]) -> list[bytes | None]:
    """Return for each of the lines of `text` its JSON with a place for each of its numbers, which
    stay in their order; None for a line that is not plain."""
    shapes = zeros = text.translate(_TO_ZEROS)
    for several in (b"0" * 8, b"0" * 4):
        shapes = shapes.replace(several, b"0")
    while b"00" in shapes:
        shapes = shapes.replace(b"00", b"0")
    found = [_template(shape) for shape in shapes.split(b"\n")]
    keyed = {template for template in {*found} if template and _NUMBER_AS_KEY in template}
    if keyed or _TOO_LONG in zeros:
        for row, line in enumerate(lines):
            # As a key 01 is 1, and as a text it would not be.
            zero_first = found[row] in keyed and _ZERO_FIRST.search(line)
            if zero_first or _TOO_LONG in line.translate(_TO_ZEROS):
                found[row] = None
    return found


@lru_cache(maxsize=4096)
def _template(shape: bytes) -> bytes | None:
    """Return the template of lines that have these texts between their numbers, each of which is a
    0 here. Each number is replaced by one that says its place, and found again in the JSON."""
    if not shape.startswith(b"{"):
        return None
    texts = shape.split(b"0")
    places = [b"%d" % (_FIRST_PLACE + place) for place in range(len(texts) - 1)]
    pieces = [piece for pair in zip(texts, [*places, b""], strict=True) for piece in pair]
    try:
        (form,) = parse(b"".join(pieces).decode())
        if type(form) is not dict or not _is_plain(form):
            return None
        found = _NUMBER.split(msgspec.json.encode(form).replace(b"%", b"%%"))
    except (ValueError, RecursionError):
        return None
    return b"%b".join(found[::2]) + b"\n" if found[1::2] == places else None


def _is_plain(value: Any) -> bool:
    """Return whether JSON can say this value."""
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is not dict:
        return value is None or type(value) in (str, int, bool)
    keys = (type(key) is str or (type(key) is int and key >= 0) for key in value)
    return all(keys) and all(map(_is_plain, value.values()))


def _without_opening(text: str) -> str:
    """Return a line without the bracket that opens the whole file."""
    return text.lstrip(" [(") if text.lstrip()[:1] in "[(" else text


def read_forms(
    blocks: Iterable[Block], plain: JsonReader[Any] = _json
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the forms of a file: those of successive lines together, with the number of the line on
    which the first begins. The reader `plain` decodes plain lines, as far as it can; a broken form
    is an EdnError. The whole file may be one vector, as in Jepsen's older histories."""
    others = _OtherLines()
    for first, text in blocks:
        lines = text.split(b"\n")
        templates = _templates(text, lines)
        each = zip(count(first), lines, templates, strict=False)
        for is_plain, some in groupby(each, lambda line: line[2] is not None):
            if is_plain:
                yield from others.end()
                yield from _of_plain([*some], plain)
                continue
            for number, line, _ in some:
                if line.strip():
                    yield from others.take(number, line.rstrip(b"\r"))
    yield from others.end()


def _of_plain(
    some: Sequence[tuple[int, bytes, Any]], plain: JsonReader[Any]
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the forms of successive plain lines, each with its number and template."""
    first = some[0][0]
    numbers = b"\n".join([line for _, line, _ in some]).translate(_TO_SPACES).split()
    json = b"".join([template for _, _, template in some]) % tuple(numbers)
    for number, forms in forms_of_json(first, json, plain):
        if isinstance(forms[0], Unreadable):  # A key twice, or a number that JSON does not know.
            ((_, forms[0]),) = _forms(some[number - first][1].decode(), number)
        yield number, forms


def forms_of_json(
    first: int, text: bytes, plain: JsonReader[Any]
) -> Iterator[tuple[int, list[Any]]]:
    """Yield what `plain`, or else any reader of JSON, makes of lines, as `read_forms` does; for a
    line that is no JSON an Unreadable."""
    for number, piece, forms in decoded(plain, first, text):
        if forms is None and piece.strip():
            try:
                forms = [_json.decode(piece.rstrip())]
            except Unreadable as error:
                forms = [error]
        if forms:
            yield number, forms


class _OtherLines:
    """A reader of lines that are not plain: a form on them may have any number of lines."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._begun = self._size = self._wait = 0

    def take(self, number: int, data: bytes) -> Iterator[tuple[int, list[Any]]]:
        """Take a line; yield the forms that end on it."""
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            yield number, [EdnError(str(error))]
            return
        if text.startswith(_BEGINS):
            yield from self.end()
        if not self._held:
            self._begun, self._size, self._wait = number, 0, 0
            text = _without_opening(text)
        self._held.append(text)
        self._size += len(text) + 1
        if self._size < self._wait:
            return
        try:
            found = parse("\n".join(self._held))
        except Unfinished:
            # A long form is parsed again only when it has doubled, so the cost stays linear.
            self._wait = 2 * self._size if self._size > _LONG else 0
        except EdnError:
            yield from self.end()
        else:
            self._held = []
            yield from ((self._begun, [form]) for form in found)

    def end(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the forms of the lines that are held, or what is wrong with them."""
        held, self._held = self._held, []
        if held:
            yield from ((n, [form]) for n, form in _forms("\n".join(held), self._begun))


def _forms(held: str, begun: int) -> Iterator[tuple[int, Any]]:
    """Yield the forms of some lines, or what is wrong with them."""
    try:
        found = parse(held)
    except Unfinished as error:
        yield begun, error
        return
    except EdnError as error:
        try:
            found = parse(held.rstrip(" ])"))
        except EdnError:
            yield begun, error
            return
    yield from ((begun, form) for form in found)
