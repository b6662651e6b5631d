"""Reading of a history, ours or of Jepsen's Kafka workload, as facts and tables."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from checker.ingest.edn import EdnError, forms_of_json, read_forms
from checker.ingest.jepsen import NotAnOperation, PlainForm, Translator, UnknownKind
from checker.ingest.lines import Block, readable_lines
from checker.ingest.read_history import Reader, Strange, finish
from checker.ingest.source import Ingested, Source, why
from harness.formats.history import Op
from node.formats.json_input import JsonReader, Unreadable

_plain: Final = JsonReader(PlainForm, keys_once=True)


def read_history(source: Source, into: Ingested) -> None:
    """Read the history `source`; add its tables and facts to `into`."""
    with collector_paused():
        reader = reader_of(source, into)
        reader.read()
        finish(reader)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Let the garbage collector rest: what is decoded has no cycles, and looking for them in it
    takes longer than to decode it."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def reader_of(source: Source, into: Ingested) -> Reader:
    """Return the reader of the form that a history has."""
    return (Reader if source.form == "own" else JepsenReader)(source, into)


class JepsenReader(Reader):
    """A reader of a Jepsen history, line by line."""

    def __init__(self, source: Source, into: Ingested) -> None:
        super().__init__(source, into)
        part = source.range
        self.translator = Translator(part.ops if part else 0, partial=part is not None)

    def read(self) -> None:
        """Take every operation that can be understood; report the others."""
        try:
            for made in _ops(self.source, self.translator, self.lose):
                if isinstance(made, Strange):
                    self.meet(made)
                else:
                    self.take_some(*made)
        except OSError as error:
            self.problem("file", f"cannot be read to its end: {why(error)}.")


def _ops(
    source: Source, translator: Translator, refuse: Callable[[str, str], None]
) -> Iterator[tuple[list[int], list[Op]] | Strange]:
    """Yield our operations for those of a history, with their lines, or that the kind of one is
    unknown; give `refuse` the kind of problem and a sentence for each that cannot be understood.
    Raises OSError."""
    for first, forms in forms_of(source.form, source.blocks()):
        numbers: list[int] = []
        ops: list[Op] = []
        for number, form in enumerate(forms, first):
            try:
                made = translator.take(form)
            except (EdnError, Unreadable, NotAnOperation, UnknownKind) as found:
                yield numbers, ops
                numbers, ops = [], []
                if isinstance(found, UnknownKind):
                    yield Strange(number, found.f, found.kind, found.doer)
                    continue
                if isinstance(found, NotAnOperation):
                    refuse("operation", f"line {number} is not an operation: {why(found)}.")
                else:
                    refuse("line", f"line {number} cannot be read: {why(found)}.")
                translator.lose()
            else:
                if made is not None:
                    numbers.append(number)
                    ops.append(made)
        yield numbers, ops


def ops_in(source: Source, needles: tuple[bytes, ...]) -> Iterator[Op]:
    """Yield the operations of a history that can be understood; if it is in our own form, only
    those on lines that have one of `needles` in them."""
    if source.form == "own":
        yield from readable_lines(source.path, Op, needles)
        return
    with contextlib.suppress(OSError):
        for made in _ops(source, Translator(), lambda *_: None):
            if not isinstance(made, Strange):
                yield from made[1]


def forms_of(form: str, blocks: Iterable[Block]) -> Iterator[tuple[int, list[Any]]]:
    """Yield the forms of successive lines of a history together, with the number of the line on
    which the first begins; for a form that cannot be read, an exception. Raises OSError."""
    if form == "edn":
        yield from read_forms(blocks, _plain)
        return
    for first, text in blocks:
        yield from forms_of_json(first, text, _plain)
