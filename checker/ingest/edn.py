"""Reading of EDN (extensible data notation), the text form of Jepsen's histories, form by form.

Keywords, symbols and strings all become `str`: a keyword without its colon, a string with its
quotes, so that `:x` and `"x"` stay two keys. Vectors, lists and sets become lists; of a tagged
value the tag is dropped, and so is metadata. A nested collection as a key equals no other key. EDN
forbids a map that has a key twice: it becomes a `Doubled`, which no reader may use. Nothing
recurses, so no input is too deep. A broken form is reported with its line, and reading goes on with
the next one.

Almost all lines are one map of plain words, numbers, vectors and maps. Such a line is rewritten as
JSON and decoded as that, which is several times faster (`_plain_form`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

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

# A plain line: only these tokens, each followed by what may follow it.
_PLAIN: Final = re.compile(
    r"""\{(?: [ ,]*+
    (?: :[a-zA-Z][\w?!-]*+(?=[ ,\]}])
    | "[\w.-]*+"(?=[ ,\]}])
    | -?(?:0|[1-9]\d{0,17}+)(?=[ ,\]}])
    | (?:nil|true|false)(?=[ ,\]}])
    | [\[{]
    | [\]}](?=[ ,\]}]|$)
    ) )*+""",
    re.VERBOSE,
)
_GAP: Final = re.compile(r"(?<=[^ ,\[{])[ ,]+(?=[^ ,\]}])")
_KEYWORD: Final = re.compile(r":[a-zA-Z][\w?!-]*")
_TEXT: Final = re.compile(r'"([\w.-]*)"')
_NIL: Final = re.compile(r"(?<=[\[{,])nil(?=[ ,\]}])")
_MAP: Final = ""
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


def _plain_form(text: str) -> dict[Any, Any] | None:
    """Return a plain line as a map; None for any other line. A map becomes an object with its keys
    and values in one array, since EDN does not say which items are keys."""
    if _PLAIN.fullmatch(text) is None:
        return None
    json = _TEXT.sub(r'"\\"\1\\""', _GAP.sub(",", text)) if '"' in text else _GAP.sub(",", text)
    json = _KEYWORD.sub(lambda keyword: f'"{keyword[0][1:]}"', json)
    json = _NIL.sub("null", json)
    json = json.replace("{", '{"":[').replace("}", "]}")
    try:
        found = _json.decode(json)
    except Unreadable:
        return None
    made, maps = _plain_map(found)
    return made if maps == text.count("{") else None


def _plain_map(found: Any) -> tuple[dict[Any, Any] | None, int]:
    """Return the map that an object of the JSON of a plain line stands for, with the maps in its
    vectors; and how many maps these are. None if the line must be read form by form."""
    items = found.get(_MAP)
    if items is None or len(items) % 2:
        return None, 0
    made: dict[Any, Any] = {}
    maps = 1
    for key, value in zip(items[::2], items[1::2], strict=True):
        if isinstance(key, list | dict) or key in made:
            return None, 0
        if isinstance(value, list):
            for steps in value:
                if isinstance(steps, list):
                    for place, step in enumerate(steps):
                        if isinstance(step, dict):
                            steps[place], more = _plain_map(step)
                            maps += more
        made[key] = value
    return made, maps


def read_line(line: bytes) -> list[Any]:
    """Return the forms of a line on which an operation begins and ends. Raises Unreadable for any
    other line, which `read_forms` must read."""
    try:
        text = line.decode()
        if text.startswith("{") and (form := _plain_form(text)) is not None:
            return [form]
        return parse(_without_opening(text))
    except (UnicodeDecodeError, EdnError) as error:
        raise Unreadable(str(error)) from None


def _without_opening(text: str) -> str:
    """Return a line without the bracket that opens the whole file."""
    return text.lstrip(" [(") if text.lstrip()[:1] in "[(" else text


def read_forms(lines: Iterable[Line]) -> Iterator[tuple[int, Any]]:
    """Yield the forms of a file, each with the number of the line on which it begins; for a broken
    form, an EdnError. The whole file may be one vector, as in Jepsen's older histories."""
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
            if text.startswith("{") and (form := _plain_form(text)) is not None:
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
