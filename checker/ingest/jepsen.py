"""Operations of Jepsen's Kafka workload, translated into operations of our history.

A Jepsen operation is a map of :type, :f, :process, :time (ns) and :value, the same as EDN or as
JSON. A send is [:send k v], completed [:send k [offset v]]; a poll is [:poll], completed [:poll {k
[[offset v] ...]}]; a key is one partition. An invocation and its completion have the same process,
which does one operation at a time. All other lines (the nemesis) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec.structs import replace

from checker.evidence.facts import OP_KINDS
from checker.ingest.edn import Collection, Doubled
from harness.formats.history import Isolation, Op, OpKind, OpType, Read, RecordRun, Send
from node.formats.bounds import PartitionName

_TYPES: Final = get_args(OpType)
_ISOLATIONS: Final = get_args(Isolation)
_LIMIT: Final = 2**63 - 2**33
_MOST_PROCESS: Final = 2**62
_MOST_RUN: Final = 2**17
_Natural = Annotated[int, msgspec.Meta(ge=0, le=_LIMIT)]
_Process = Annotated[int, msgspec.Meta(ge=0, le=_MOST_PROCESS)]
NS_PER_US: Final = 1000
_NEMESIS: Final = "nemesis"
_FIRST_NAMED: Final = 1 << 40
"""The number of the first process that has a name; those of others are far below."""
MOST_SHOWN: Final = 60
"""Characters of a value that is quoted; longer ones are cut."""


class NotAnOperation(ValueError):
    """An error: a form cannot be understood as an operation; the message says why."""


class UnknownKind(Exception):
    """Raised for a line of a client's operation of a kind that no check knows. `doer`: its process,
    which pairs the lines of an operation."""

    def __init__(self, f: str, kind: OpType, doer: int) -> None:
        super().__init__(f)
        self.f, self.kind, self.doer = f, kind, doer


class _Record(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """An offset and a value."""

    offset: _Natural
    value: _Natural


class _Sent(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag="send", gc=False):
    """`[:send k v]` or `[:send k [offset v]]`."""

    key: int | PartitionName
    record: _Natural | _Record


class _Polled(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag="poll", gc=False):
    """`[:poll]` or `[:poll {k [[offset v] ...]}]`."""

    records: dict[PartitionName, list[_Record]] | None = None


class PlainForm(msgspec.Struct, gc=False):
    """An operation in the form of almost all: it sends and polls, and names no process. A map of
    any other form is brought into it."""

    type: OpType
    f: Literal["send", "poll", "txn"]
    process: _Process
    time: _Natural
    value: list[_Sent | _Polled] | None = None
    error: Any = None
    isolation: Any = msgspec.UNSET
    level: Any = msgspec.field(default=msgspec.UNSET, name="isolation-level")
    rebalance_log: Any = msgspec.field(default=None, name="rebalance-log")


_EXTRAS: Final = attrgetter("error", "rebalance_log", "isolation", "level")
_NO_EXTRAS: Final = (None, None, msgspec.UNSET, msgspec.UNSET)


class Translator:
    """A translator of one Jepsen history, which takes its operations in order and remembers which
    of them have not completed. If the history is `partial`, `ops` operations are invoked in front
    of it, and an operation that only ends in it has a negative number of its process."""

    def __init__(self, ops: int = 0, *, partial: bool = False) -> None:
        self.ops = ops
        self.partial = partial
        # If lines are lost, half an operation may be missing, which is no further mistake.
        self.lines_lost = False
        self.open: dict[int, tuple[int, OpKind]] = {}
        # Processes that began again at the start of every partition: their reads are final. For
        # each, the next offset in each partition that it was assigned.
        self.from_start: dict[int, dict[str, int]] = {}
        # Numbers of the processes that have names.
        self.named: dict[str, int] = {}
        # The names of the partitions that keys stand for, and how each is written: some keys are
        # numbers, and some are words that look like numbers. JSON tells them apart.
        self.keys: dict[int | str, str] = {}
        self.written: dict[str, type] = {}
        self.unclear = ""

    def take(self, form: Any) -> Op | None:
        """Translate a form into our operation; None if not a client's. Raises NotAnOperation, and
        the form itself if it is an error."""
        client, partitions, seeks = "", tuple[str, ...](), False
        if type(form) is not PlainForm:
            found = understood(form, self.named)
            if found is None:
                return None
            form, client, partitions, seeks = found
        kind, process, f = form.type, form.process, form.f
        # Most operations have none of these.
        more = None if _EXTRAS(form) == _NO_EXTRAS else _more(form)
        sends: list[Send] = []
        reads: list[Read] = []
        for step in form.value or ():
            if isinstance(step, _Sent):
                sent = step.record
                partition = self.keys.get(step.key) or self._note_key(step.key)
                if isinstance(sent, _Record):
                    sends.append(Send(partition=partition, value=sent.value, offset=sent.offset))
                else:
                    sends.append(Send(partition=partition, value=sent))
            elif step.records:
                for key, records in step.records.items():
                    reads.append(Read(partition=key, records=_runs(records)))
        if self.unclear:
            raise NotAnOperation(self.unclear)
        if (turn := self._turn(kind, process, f)) is None:
            return None
        op = Op(
            op=turn[0],
            process=process,
            t_us=form.time // NS_PER_US,
            type=kind,
            f=f,
            client=client or str(process),
            sends=tuple(sends),
            reads=tuple(reads),
            partitions=partitions,
            final=turn[1],
        )
        if more:
            op = replace(op, **more)
        return self._completed(op, seeks) if turn[1] or f in ("assign", "subscribe") else op

    def lose(self) -> None:
        """Note that a line was lost: no reader's position is known any more."""
        self.lines_lost = True
        self.from_start.clear()

    def _note_key(self, key: int | str) -> str:
        """Return the partition of a new key, and remember how it is written: no two look alike."""
        self.keys[key] = name = str(key)
        if self.written.setdefault(name, type(key)) is not type(key):
            self.unclear = (
                f"key {name} is a word here and a number elsewhere, or the other way round, "
                "and what is polled does not say which of the two it is of: rename one of them"
            )
        return name

    def _turn(self, kind: OpType, process: int, f: OpKind) -> tuple[int, bool] | None:
        """Return the number of the operation that a process invokes or completes, and whether it is
        final; None if its invocation was lost. Raises NotAnOperation."""
        if kind == "invoke":
            # If the last one has not ended, its outcome stays unknown: the next end is not its own.
            self.open[process] = self.ops, f
            self.ops += 1
            return self.ops - 1, False
        invoked = self.open.get(process)
        if invoked is None and self.lines_lost:
            return None
        if invoked is None and self.partial:
            return -1 - process, False
        if invoked is None:
            raise NotAnOperation(f"process {process} completes what it never invoked")
        number, begun = invoked
        if begun != f:
            raise NotAnOperation(f"process {process} completes {f}, but invoked {begun}")
        del self.open[process]
        return number, process in self.from_start and f in ("poll", "txn")

    def _completed(self, op: Op, seeks: bool) -> Op:
        """Return an operation with what the earlier ones of its process add: where final
        reads begin. `seeks`: an assignment begins at the start of its partitions."""
        if op.f in ("assign", "subscribe") and op.type in ("ok", "info"):
            self.from_start.pop(op.process, None)
            if seeks and op.type == "ok":
                self.from_start[op.process] = dict.fromkeys(op.partitions, 0)
                # It keeps no position, also in partitions that it had before.
                op = replace(op, rebalanced=op.partitions)
        if op.final and op.type == "ok":
            op = self._with_positions(op)
        return op

    def _with_positions(self, op: Op) -> Op:
        """Return a final poll that says where it was asked to begin: at the start of a partition,
        and in each answer without records. A poll that returned nothing at all is such an answer
        for every partition assigned."""
        places = self.from_start[op.process]
        reads = op.reads
        if op.f == "poll" and not any(read.records for read in reads):
            answered = {read.partition for read in reads}
            reads += tuple(Read(partition=p) for p in places if p not in answered)
        made = []
        for read in reads:
            if read.records:
                if places.get(read.partition) == 0:
                    read = replace(read, start=0)
                places[read.partition] = read.records[-1].offset + read.records[-1].count
            else:
                read = replace(read, start=places.get(read.partition, -1))
            made.append(read)
        return replace(op, reads=tuple(made))


def understood(
    form: Any, named: dict[str, int]
) -> tuple[PlainForm, str, tuple[str, ...], bool] | None:
    """Bring a map into the plain form; return that, the client, the partitions that it assigns, and
    whether it seeks to their beginning; None if it is not of a client. A process with a name gets a
    number, which is kept in `named`. Raises UnknownKind and NotAnOperation."""
    if isinstance(form, Exception):
        raise form
    if type(form) is not dict and not isinstance(form, Mapping):
        raise NotAnOperation(f"it is {_kind_of(form)}, not a map")
    if type(form) is Doubled:
        raise NotAnOperation("it says a key twice")
    process, name = form.get("process"), ""
    if isinstance(process, str):
        name = process.strip(':"')
        if name == _NEMESIS:
            return None
        process = named.setdefault(name, _FIRST_NAMED + len(named))
    kind: Any = form.get("type")
    f: Any = form.get("f")
    if kind not in _TYPES:
        raise NotAnOperation(f":type is {_show(kind)}, not invoke, ok, fail or info")
    if f not in OP_KINDS:
        raise UnknownKind(_show(f), kind, _number(process, ":process"))
    value, partitions = _body(form, f)
    plain = PlainForm(
        type=kind,
        f=f,
        process=_number(process, ":process", _MOST_PROCESS),
        time=_number(form.get("time"), ":time"),
        value=value,
        error=form.get("error"),
        isolation=form.get("isolation", msgspec.UNSET),
        level=form.get("isolation-level", msgspec.UNSET),
        rebalance_log=form.get("rebalance-log"),
    )
    return plain, name or str(process), partitions, bool(form.get("seek-to-beginning?"))


def _more(form: PlainForm) -> dict[str, Any]:
    """Return the fields of an operation that few have."""
    level = form.level if form.isolation is msgspec.UNSET else form.isolation
    found: dict[str, Any] = {}
    if form.rebalance_log is not None and form.type != "invoke":
        found["rebalanced"] = tuple(_rebalanced(form.rebalance_log))
    if form.error is not None and form.type != "invoke":
        found["error"] = _error(form.error)
    if level is not msgspec.UNSET:
        found["isolation"] = _isolation(level)
    return found


def _body(form: Mapping[str, Any], f: OpKind) -> tuple[list[_Sent | _Polled], tuple[str, ...]]:
    """Return the steps or the partitions of an operation."""
    value = form.get("value")
    if f in ("crash", "debug-topic-partitions") or value is None:
        return [], ()
    if not isinstance(value, list):
        raise NotAnOperation(f":value is {_kind_of(value)}, not a vector")
    if f in ("assign", "subscribe"):
        return [], tuple(_partition(key) for key in value)
    steps: list[_Sent | _Polled] = []
    for step in value:
        match step:
            case ["send", key, sent]:
                steps.append(_sent(key, sent))
            case ["poll"] | ["poll", None]:
                pass
            case ["poll", Doubled()]:
                raise NotAnOperation("a poll says a key twice")
            case ["poll", dict(polled)]:
                steps += (_polled(key, pairs) for key, pairs in polled.items())
            case _:
                raise NotAnOperation(f"{_show(step)} is neither a send nor a poll")
    return steps, ()


def _sent(key: Any, sent: Any) -> _Sent:
    """Read `[:send k v]` or `[:send k [offset v]]`; the offset may be nil."""
    _partition(key)
    if not isinstance(sent, list):
        return _Sent(key, _number(sent, "a value"))
    if len(sent) != 2:
        raise NotAnOperation(f"{_show(sent)} is not an offset and a value")
    offset = -1 if sent[0] is None else _number(sent[0], "an offset")
    return _Sent(key, _Record(offset, _number(sent[1], "a value")))


def _polled(key: Any, pairs: Any) -> _Polled:
    """Read the records of one key that a poll returned."""
    if not isinstance(pairs, list):
        raise NotAnOperation(f"the records polled of {_show(key)} are {_kind_of(pairs)}, no list")
    return _Polled({_partition(key): [_record(pair) for pair in pairs]})


def _record(pair: Any) -> _Record:
    """Read `[offset v]`. A message without a value counts as unreadable, which a negative value
    stands for."""
    if not isinstance(pair, list) or len(pair) != 2:
        raise NotAnOperation(f"{_show(pair)} is not an offset and a value")
    offset = _number(pair[0], "an offset")
    return _Record(offset, -1 if pair[1] is None else _number(pair[1], "a value"))


def _runs(records: Iterable[_Record]) -> tuple[RecordRun, ...]:
    """Return records as runs, in which offset and value both rise by one from record to record."""
    found: list[RecordRun] = []
    offset = value = count = 0
    for record in records:
        at, read = record.offset, record.value
        if at == offset + count and read == value + count and 0 < count < _MOST_RUN and value >= 0:
            count += 1
            continue
        if count:
            found.append(RecordRun(offset, value, count))
        offset, value, count = at, read, 1
    if count:
        found.append(RecordRun(offset, value, count))
    return tuple(found)


def _rebalanced(log: Any) -> Iterator[str]:
    """Yield every key that a rebalance log names."""
    for event in log if isinstance(log, list) else ():
        if type(event) is Doubled:
            raise NotAnOperation("the rebalance log says a key twice")
        keys = event.get("keys") if isinstance(event, Mapping) else None
        for key in keys if isinstance(keys, list) else ():
            yield _partition(key)


def _partition(key: Any) -> str:
    if type(key) is str and key:
        return key
    if isinstance(key, bool) or not isinstance(key, int | str) or key == "":
        raise NotAnOperation(f"{_show(key)} is no key: it must be a number or a non-empty word")
    return str(key)


def _number(value: Any, what: str, most: int = _LIMIT) -> int:
    if type(value) is int and 0 <= value <= most:
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotAnOperation(f"{what} is {_show(value)}, not a number")
    if not 0 <= value <= most:
        raise NotAnOperation(f"{what} is {value}, outside 0 .. {most}")
    return value


def _isolation(level: Any) -> Isolation:
    """Return the isolation of a reader: a word, or a keyword, with either kind of dash."""
    named: Any = level.strip(':"').replace("-", "_") if isinstance(level, str) else level
    if named not in _ISOLATIONS:
        raise NotAnOperation(f":isolation is {_show(level)}, not read_[un]committed")
    isolation: Isolation = named
    return isolation


def _error(error: Any) -> str:
    try:
        return _show(_unquoted(error))
    except RecursionError:
        return type(error).__name__


def _unquoted(value: Any) -> Any:
    """Return a value with texts without quotes, as EDN keywords are."""
    match value:
        case str() if len(value) > 1 and value[0] == value[-1] == '"':
            return value[1:-1]
        case list():
            return [_unquoted(each) for each in value]
        case dict():
            return {_unquoted(key): _unquoted(each) for key, each in value.items()}
        case Collection():
            return _in_full(value.items)
    return value


def _show(value: Any) -> str:
    """Return a value in few words."""
    text = _in_full(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:57]}..."


def _in_full(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return str(type(value).__name__)


def _kind_of(value: Any) -> str:
    names = {dict: "a map", list: "a vector", str: "a word", type(None): "nil"}
    return names.get(type(value), "a number")
