"""Everything that decodes or reads what anybody may have written, as one table of fuzz targets.

A target takes bytes. It returns, or raises FloodmarkError; anything else is a bug, and so is memory
or time out of proportion. A new decoder or reader gets a row here."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
import pyarrow.parquet as pq

from checker.engine.local import check_files
from checker.evidence.run_meta import RunMeta
from checker.formats.verdict import RunResult
from checker.ingest import edn, read_jepsen, tables
from checker.ingest.ingest import IN_MEMORY, ingest, sources
from checker.ingest.jepsen import NotAnOperation, Translator, UnknownKind
from checker.ingest.read_tables import HISTORY_TABLES, table_sources
from harness.formats.baseline import Baseline
from harness.formats.finding import Explanation, Finding
from harness.formats.journal import SearchRow
from harness.formats.nightly_journal import AnyRow
from harness.formats.nightly_run import NightlyRun
from nemesis.formats.message_log import MessageLine
from nemesis.formats.schedule import parse
from node.core import batch, image, log_dump
from node.core.groups.state import GroupTarget, StateRecord, decode_payload, encode_batch
from node.formats import json_input, wire
from node.formats import wire as header
from node.formats.errors import FloodmarkError
from node.formats.json_input import JsonReader
from node.formats.messages import Heartbeat
from node.runtime import journal
from tests.support.checker.story import Story
from tests.support.paths import contents

Run = Callable[[bytes], None]
SEPARATOR: Final = b"\0|\0"
"""Between the frames of a message."""


@dataclass(frozen=True)
class Target:
    """One decoder or reader. `seeds` are inputs that it understands."""

    name: str
    run: Run
    seeds: tuple[bytes, ...]

    def accepts(self, data: bytes) -> bool:
        """Return whether it understands the input. Raises whatever breaks the contract."""
        try:
            self.run(data)
        except FloodmarkError:
            return False
        return True


# Messages.


def _wire(data: bytes) -> None:
    frames = data.split(SEPARATOR)
    header.peek(frames)
    *_, body = wire.decode(frames)
    if body is not None:
        *_, batches = header.split_fetch_body(body)
        _batches(batches)


def _batches(data: bytes) -> None:
    for found in batch.split(data):
        image.check_payload(found.payload)
        image.decode_records(found.payload)


def _group_records(data: bytes) -> None:
    for found in batch.split(data):
        decode_payload(found.payload)


_HEARTBEAT: Final = Heartbeat(broker="n1", broker_epoch=1)
_METADATA: Final = batch.build(1, image.encode_records([]))
_GROUPS: Final = encode_batch([StateRecord(("group", "g"), GroupTarget(epoch=1))])
_CONTROL: Final = batch.build(1, image.encode_records([]), control=True)
_WIRE_SEED: Final = SEPARATOR.join(
    wire.encode("v1", "n1", _HEARTBEAT, header.fetch_body(1, 2, [_METADATA, _CONTROL]))
)


# Files of a run.


@cache
def small_run() -> Mapping[str, bytes]:
    """Return the files of a small run that is valid."""
    story = Story()
    batches = story.busy(3)
    story.final((0, 1_000_000, 12))
    story.agree(*batches)
    with tempfile.TemporaryDirectory() as place:
        return dict(sorted(contents(story.write(Path(place))).items()))


def _evidence(name: str) -> Run:
    """Return the verdict of the small run with another text in this file."""

    def judge(data: bytes) -> None:
        files = {**small_run(), name: data}
        for source in sources(0, Path(IN_MEMORY), files):
            if source.name == name or (source.kind == "head" and name in _READ_BY_THE_HEAD):
                ingest(source, None)
        # The whole verdict takes ten times as long.
        if data and zlib.crc32(data) % 8:
            return
        result = check_files(files)
        broken = [line for line in result.problems if _A_CHECK_FAILED.match(line)]
        assert not broken, broken
        msgspec.json.encode(result)

    return judge


_READ_BY_THE_HEAD: Final = ("run.json", "faults.jsonl", "exits.jsonl")
_A_CHECK_FAILED: Final = re.compile(r"The check of .* failed: ")


def _schedule(data: bytes) -> None:
    schedule = parse(data)
    assert parse(schedule.to_json()) == schedule


_nothing: Final = JsonReader(bool)
_CAREFUL: Final = ((), ((read_jepsen, "_plain", _nothing),), ((edn, "_template", lambda _: None),))


def _jepsen(data: bytes, form: str) -> None:
    """Read operations as usual; those of plain lines are what they are form by form."""
    found = []
    for changed in _CAREFUL:
        translator, ops = Translator(), []
        with contextlib.ExitStack() as stack:
            for change in changed:
                stack.enter_context(patch.object(*change))
            for each in chain.from_iterable(
                forms for _, forms in read_jepsen.forms_of(form, [(1, data)])
            ):
                if not isinstance(each, Exception):
                    with contextlib.suppress(NotAnOperation, UnknownKind):
                        ops.append(translator.take(each))
        found.append(ops)
    assert found[0] == found[1] == found[2]


_EDN: Final = (
    b"{:process 0, :type :invoke, :f :send, :value [[:send 0 1]], :time 1}\n"
    b"{:process 0, :type :ok, :f :send, :value [[:send 0 [0 1]]], :time 2}\n"
    b"#jepsen.history.Op{:index 2 :process 1 :type :invoke :f :poll :value [[:poll]] :time 3}\n"
    b"{:process 1, :type :ok, :f :poll, :value [[:poll {0 [[0 1] [1 nil]]}]], :time 4, "
    b':rebalance-log [{:keys [0]}] :error [:a "b\\n" 1.5e3M 7N]}\n'
)
_JEPSEN: Final = (
    b'{"process":0,"type":"invoke","f":"send","value":[["send",0,1]],"time":1}\n'
    b'{"process":0,"type":"ok","f":"send","value":[["send",0,[0,1]]],"time":2}\n'
    b'{"process":"nemesis","type":"info","f":"kill","value":null,"time":2}\n'
)


def _forms(data: bytes) -> None:
    """Every form that a file of ours is decoded to."""
    first, _, rest = data.partition(b"\n")
    number = first[0] % len(_FORMS) if first else 0
    json_input.decode(rest, _FORMS[number])


_FORMS: Final[tuple[Any, ...]] = (
    *(RunResult, Baseline, Explanation, Finding, NightlyRun, MessageLine, AnyRow),
    SearchRow,
)


# Binary files.


def _parquet(data: bytes) -> None:
    """Read a table of a history, whatever it holds, with the reader of each kind of table."""
    kind = HISTORY_TABLES[data[0] % len(HISTORY_TABLES)] if data else HISTORY_TABLES[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        target = folder / "tables" / f"{kind}.parquet"
        target.mkdir(parents=True)
        (target / "part-0.parquet").write_bytes(data[1:])
        for source in table_sources(0, folder, folder / "tables"):
            ingest(source, None, RunMeta())


def _parquet_seed(number: int) -> bytes:
    name = HISTORY_TABLES[number]
    out = io.BytesIO()
    pq.write_table(tables.SCHEMAS[name].empty_table(), out)
    return bytes([number]) + out.getvalue()


def _stored_values(data: bytes) -> None:
    """Decode the values that a store keeps beside its batches, and a stored batch."""
    log_dump.log_dump("log-0", lambda **_: iter(()), lambda key: data)
    log_dump.end_of(0, data, len(data))
    log_dump.batch_dump(0, data[:8].ljust(8, b"\0"), data[8:], bytes(8))


def _journal(data: bytes) -> None:
    """Open a journal with this content, and one whose only turn is this."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "journal"
        file.write_bytes(data)
        with contextlib.suppress(FloodmarkError):
            journal.read(file)
        crc = journal._crc(data, 1)
        frame = journal._FRAME.pack(len(data), crc) + data
        file.write_bytes(journal._header(1, bytes(16)) + frame)
        journal.read(file)


_LINES: Final = {
    "faults.jsonl": (
        b'{"fault":0,"what":"kill","action":"inject","t_us":5,"done_us":6,"nodes":["n1"]}\n'
        b'{"fault":1,"what":"cut","action":"effect","t_us":7,"links":[["n1","n2"]],"dropped":3}\n',
    ),
    "exits.jsonl": (
        b'{"node":"n1","incarnation":1,"t_us":5,"code":-9,"by":"kill","expected":true}\n'
        b'{"node":"n2","t_us":6,"code":70,"by":"itself"}\n',
    ),
}


def _evidence_targets() -> Iterator[Target]:
    for name in sorted(small_run()):
        # One of several replicas is enough; `schedule.json` has a target of its own.
        if name != "schedule.json" and not name.endswith(("n2.jsonl", "n3.jsonl")):
            seeds = (small_run()[name], *_LINES.get(name, ()))
            yield Target(name.replace("/", "-"), _evidence(name), tuple(filter(None, seeds)))


def _all() -> Iterator[Target]:
    yield Target("wire", _wire, (_WIRE_SEED,))
    yield Target("batches", _batches, (_METADATA, _CONTROL))
    yield Target("group-records", _group_records, (_GROUPS,))
    yield Target("schedule", _schedule, tuple(_corpus_schedules()))
    yield from _evidence_targets()
    yield Target("edn", partial(_jepsen, form="edn"), (_EDN,))
    yield Target("jepsen-json", partial(_jepsen, form="jepsen"), (_JEPSEN,))
    yield Target("forms", _forms, tuple(bytes([n]) + b"\n{}" for n in range(len(_FORMS))))
    yield Target("parquet", _parquet, tuple(map(_parquet_seed, range(len(HISTORY_TABLES)))))
    yield Target("stored-values", _stored_values, (struct.pack(">q", 5), batch.build(3, b"abc")))
    yield Target("journal", _journal, (b"\x90", b"\x91\x92\xa1a\x01"))


def _corpus_schedules() -> list[bytes]:
    from tests.support.paths import ROOT

    return [file.read_bytes() for file in sorted((ROOT / "tests" / "corpus").glob("*.json"))]


TARGETS: Final[Mapping[str, Target]] = {target.name: target for target in _all()}
