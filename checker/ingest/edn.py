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
from typing import Any, Final, NamedTuple

import msgspec

from checker.ingest.lines import Line
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
_DIGITS_OF_PLAIN: Final = 19
_FIRST_PLACE: Final = 10 ** (_DIGITS_OF_PLAIN - 2)
_json: Final = JsonReader(Any)


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


class _Template(NamedTuple):
    """JSON of a plain line: the text between its numbers, which stay in their order, and for each
    map with several numbers as keys the places of these."""

    texts: list[bytes]
    keys: list[list[int]]


def _plain_json(line: bytes) -> bytes | None:
    """Return a plain line as JSON; None for any other line. Numbers as keys become texts."""
    pieces = _NUMBER.split(line)
    template = _template(tuple(pieces[::2]))
    if template is None:
        return None
    numbers = pieces[1::2]
    if numbers and max(map(len, numbers)) >= _DIGITS_OF_PLAIN:
        return None
    for places in template.keys:
        keys = {numbers[place] for place in places}
        if len(keys) != len(places) or any(key[:1] == b"0" and key != b"0" for key in keys):
            return None
    pieces[::2] = template.texts
    return b"".join(pieces)


@lru_cache(maxsize=4096)
def _template(shape: tuple[bytes, ...]) -> _Template | None:
    """Return the template of lines with these texts between their numbers; None if such a line is
    not plain. Each number is replaced by one that says its place, and found again in the JSON."""
    places = [b"%d" % (_FIRST_PLACE + place) for place in range(len(shape) - 1)]
    pieces = [piece for pair in zip(shape, [*places, b""], strict=True) for piece in pair]
    keys: list[list[int]] = []
    try:
        (form,) = parse(b"".join(pieces).decode())
        if type(form) is not dict or not _is_plain(form, keys):
            return None
        found = _NUMBER.split(msgspec.json.encode(form))
    except (ValueError, RecursionError):
        return None
    return _Template(found[::2], keys) if found[1::2] == places else None


def _is_plain(value: Any, keys: list[list[int]]) -> bool:
    """Return whether JSON can say this value, and whether no map in it has a key twice, whatever
    its numbers are; but add to `keys` the places of numbers that are the keys of one map."""
    if type(value) is list:
        return all(_is_plain(each, keys) for each in value)
    if type(value) is not dict:
        return value is None or type(value) in (str, int, bool)
    numbers = [key - _FIRST_PLACE for key in value if type(key) is int]
    texts = {re.sub("[0-9]+", "", key) for key in value if type(key) is str}
    if len(numbers or texts) != len(value) or min(numbers, default=0) < 0:
        return False
    keys += [numbers] if numbers else []
    return all(_is_plain(each, keys) for each in value.values())


def _without_opening(text: str) -> str:
    """Return a line without the bracket that opens the whole file."""
    return text.lstrip(" [(") if text.lstrip()[:1] in "[(" else text


def read_forms(
    lines: Iterable[Line], plain: Sequence[JsonReader[Any]] = (_json,)
) -> Iterator[tuple[int, Any]]:
    """Yield the forms of a file, each with the number of the line on which it begins; for a plain
    line what the first of the readers `plain` that understands it makes of it, for a broken form an
    EdnError. The whole file may be one vector, as in Jepsen's older histories."""
    held: list[str] = []
    begun = size = wait = 0
    for number, data, _ in lines:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            yield number, EdnError(str(error))
            continue
        if held and text.startswith(_BEGINS):
            yield from _forms("\n".join(held), begun)
            held.clear()
        if not held:
            begun, size, wait = number, 0, 0
            json = _plain_json(data) if text.startswith("{") else None
            if json is not None and (form := _decoded(json, plain)) is not None:
                yield number, form
                continue
            text = _without_opening(text)
        held.append(text)
        size += len(text) + 1
        if size < wait:
            continue
        try:
            found: list[Any] = parse("\n".join(held))
        except Unfinished:
            # A long form is parsed again only when it has doubled, so the cost stays linear.
            wait = 2 * size if size > _LONG else 0
            continue
        except EdnError:
            yield from _forms("\n".join(held), begun)
        else:
            yield from ((begun, form) for form in found)
        held.clear()
    if held:
        yield from _forms("\n".join(held), begun)


def _decoded(json: bytes, readers: Sequence[JsonReader[Any]]) -> Any:
    """Return what the first reader that can makes of a plain line; None if it has a number in a
    form that JSON does not know."""
    for reader in readers:
        try:
            return reader.decode(json)
        except Unreadable:
            pass
    return None


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
