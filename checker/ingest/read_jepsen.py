"""Reading of a history of Jepsen's Kafka workload line by line, as operations of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from checker.ingest.edn import read_forms
from checker.ingest.jepsen import NotAnOperation, PlainForm, Translator, UnknownKind
from checker.ingest.lines import Block, lines_of, readable_lines
from checker.ingest.read_history import Reader, Strange
from checker.ingest.source import Ingested, Source, decoded, why
from harness.formats.history import Op
from node.formats.json_input import JsonReader, Unreadable

_json: Final = JsonReader(Any, keys_once=True)
_plain: Final = JsonReader(PlainForm, keys_once=True)
_plain_edn: Final = (JsonReader(PlainForm), JsonReader(Any))


class JepsenReader(Reader):
    """A reader of a Jepsen history, line by line."""

    def __init__(self, source: Source, into: Ingested) -> None:
        super().__init__(source, into)
        part = source.range
        self.translator = Translator(part.ops if part else 0, partial=part is not None)

    def read(self) -> None:
        """Take every operation that can be understood; report the others."""
        try:
            for number, op in _ops(self.source, self.translator, self.refuse_form):
                if isinstance(op, Strange):
                    self.meet(op)
                else:
                    self.take(number, op)
        except OSError as error:
            self.problem("file", f"cannot be read to its end: {why(error)}.")

    def refuse_form(self, kind: str, sentence: str) -> None:
        """Report a form that is no operation."""
        self.lose(kind, sentence)


def _ops(
    source: Source, translator: Translator, refuse: Callable[[str, str], None]
) -> Iterator[tuple[int, Op | Strange]]:
    """Yield our operation for each one of a history, with its line, or that its kind is unknown;
    give `refuse` the kind of problem and a sentence for each that cannot be understood. Raises
    OSError."""
    for number, form in forms_of(source.form, source.blocks()):
        try:
            if isinstance(form, Exception):
                refuse("line", f"line {number} cannot be read: {why(form)}.")
                translator.lose()
            elif (made := translator.take(form)) is not None:
                yield number, made
        except UnknownKind as found:
            yield number, Strange(number, found.f, found.kind, found.doer)
        except NotAnOperation as error:
            refuse("operation", f"line {number} is not an operation: {why(error)}.")
            translator.lose()


def ops_in(source: Source, needles: tuple[bytes, ...]) -> Iterator[Op]:
    """Yield the operations of a history that can be understood; if it is in our own form, only
    those on lines that have one of `needles` in them."""
    if source.form == "own":
        yield from readable_lines(source.path, Op, needles)
        return
    with contextlib.suppress(OSError):
        for _, op in _ops(source, Translator(), lambda *_: None):
            if isinstance(op, Op):
                yield op


def forms_of(form: str, blocks: Iterable[Block]) -> Iterator[tuple[int, Any]]:
    """Yield the forms of a history with the numbers of their lines; for a form that cannot be read,
    an exception. Raises OSError."""
    if form == "edn":
        lines = (line for block in blocks for line in lines_of(*block))
        yield from read_forms(lines, _plain_edn)
        return
    for block in blocks:
        for first, piece, entries in decoded(_plain, *block):
            if entries is not None:
                yield from enumerate(entries, first)
                continue
            for line in lines_of(first, piece):
                try:
                    yield line.number, _json.decode(line.data)
                except Unreadable as error:
                    yield line.number, error
