"""Operations of Jepsen's Kafka workload, translated into operations of our history.

A Jepsen operation is a map of :type, :f, :process, :time (ns) and :value, the same as EDN or as
JSON. A send is [:send k v], completed [:send k [offset v]]; a poll is [:poll], completed [:poll {k
[[offset v] ...]}]; a key is one partition. An invocation and its completion have the same process,
which does one operation at a time. All other lines (the nemesis) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec
from msgspec.structs import replace

from checker.ingest.edn import Collection, Doubled
from harness.formats.history import Isolation, Op, OpKind, OpType, Read, RecordRun, Send

_TYPES: Final = get_args(OpType)
_KINDS: Final = get_args(OpKind)
_ISOLATIONS: Final = get_args(Isolation)
_LIMIT: Final = 2**63 - 2**33
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


class Translator:
    """A translator of one Jepsen history, which takes its operations in order and remembers which
    of them have not completed."""

    def __init__(self) -> None:
        self.ops = 0
        # If lines are lost, half an operation may be missing, which is no further mistake.
        self.lines_lost = False
        self.open: dict[int, tuple[int, OpKind]] = {}
        # Processes that began again at the start of every partition: their reads are final. For
        # each, the next offset in each partition that it was assigned.
        self.from_start: dict[int, dict[str, int]] = {}
        # Numbers of the processes that have names.
        self.named: dict[str, int] = {}
        # Keys that are numbers, and words that look like numbers: JSON tells them apart.
        self.numbers: set[str] = set()
        self.words: set[str] = set()

    def take(self, form: Any) -> Op | None:
        """Translate a form into our operation; None if not a client's. Raises NotAnOperation."""
        op = operation(form, self.named)
        if op is None:
            return None
        self._note_keys(form)
        if op.type == "invoke":
            return self._invoke(op)
        return self._complete(op, bool(form.get("seek-to-beginning?")))

    def lose(self) -> None:
        """Note that a line was lost: no reader's position is known any more."""
        self.lines_lost = True
        self.from_start.clear()

    def _note_keys(self, form: Mapping[str, Any]) -> None:
        """Remember how keys are written. Raises NotAnOperation for two that look the same."""
        for key in keys_sent_to(form):
            if isinstance(key, str) and key.isdigit():
                self.words.add(key)
            elif type(key) is int:
                self.numbers.add(str(key))
        if both := self.words & self.numbers:
            raise NotAnOperation(
                f"key {min(both)} is a word here and a number elsewhere, or the other way round, "
                "and what is polled does not say which of the two it is of: rename one of them"
            )

    def _invoke(self, op: Op) -> Op:
        # If the last one has not ended, its outcome stays unknown: the next end is not its own.
        op = replace(op, op=self.ops)
        self.ops += 1
        self.open[op.process] = op.op, op.f
        return op

    def _complete(self, op: Op, seeks: bool) -> Op | None:
        invoked = self.open.get(op.process)
        if invoked is None and self.lines_lost:
            return None
        if invoked is None:
            raise NotAnOperation(f"process {op.process} completes what it never invoked")
        number, f = invoked
        if f != op.f:
            raise NotAnOperation(f"process {op.process} completes {op.f}, but invoked {f}")
        final = op.process in self.from_start and op.f in ("poll", "txn")
        del self.open[op.process]
        return self.completed(replace(op, op=number, final=final), seeks)

    def completed(self, op: Op, seeks: bool) -> Op:
        """Return a completed operation with what the earlier ones of its process add: where final
        reads begin. `seeks`: an assignment begins at the start of its partitions."""
        if op.f in ("assign", "subscribe") and op.type != "fail":
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


def keys_sent_to(form: Mapping[str, Any]) -> list[Any]:
    """Return the keys that an operation sends to, as the history writes them."""
    value = form.get("value")
    if not isinstance(value, list):
        return []
    return [s[1] for s in value if isinstance(s, list) and len(s) == 3 and s[0] == "send"]


def operation(form: Any, named: dict[str, int] | None = None) -> Op | None:
    """Translate a form by itself into our operation, with the number 0; None if it is not a
    client's. A process with a name gets a number, which is kept in `named`. Raises UnknownKind, and
    NotAnOperation, also if the meaning depends on other forms."""
    if type(form) is not dict and not isinstance(form, Mapping):
        raise NotAnOperation(f"it is {_kind_of(form)}, not a map")
    process, name = form.get("process"), ""
    if isinstance(process, str):
        name = process.strip(':"')
        if name == _NEMESIS:
            return None
        if named is None:
            raise NotAnOperation(f"process {_show(process)} has a name")
        process = named.setdefault(name, _FIRST_NAMED + len(named))
    kind: Any = form.get("type")
    f: Any = form.get("f")
    if kind not in _TYPES:
        raise NotAnOperation(f":type is {_show(kind)}, not invoke, ok, fail or info")
    if f not in _KINDS:
        raise UnknownKind(_show(f), kind, _number(process, ":process"))
    if type(form) is Doubled:
        raise NotAnOperation("it says a key twice")
    ends: dict[str, Any] = {}
    if kind != "invoke":
        rebalanced = tuple(_rebalanced(form.get("rebalance-log")))
        ends = {"rebalanced": rebalanced, "error": _error(form)}
    if "isolation" in form or "isolation-level" in form:
        ends["isolation"] = _isolation(form.get("isolation", form.get("isolation-level")))
    return Op(
        op=0,
        process=_number(process, ":process"),
        t_us=_number(form.get("time"), ":time") // NS_PER_US,
        type=kind,
        f=f,
        client=name or str(process),
        **_body(form, f),
        **ends,
    )


def _body(form: Mapping[str, Any], f: OpKind) -> dict[str, Any]:
    """Return the sends, the reads or the partitions of an operation."""
    value = form.get("value")
    if f in ("crash", "debug-topic-partitions") or value is None:
        return {}
    if not isinstance(value, list):
        raise NotAnOperation(f":value is {_kind_of(value)}, not a vector")
    if f in ("assign", "subscribe"):
        return {"partitions": tuple(_partition(key) for key in value)}
    sends: list[Send] = []
    reads: list[Read] = []
    for step in value:
        match step:
            case ["send", key, sent]:
                sends.append(_send(key, sent))
            case ["poll"] | ["poll", None]:
                pass
            case ["poll", Doubled()]:
                raise NotAnOperation("a poll says a key twice")
            case ["poll", dict(polled)]:
                reads += (_read(key, pairs) for key, pairs in polled.items())
            case _:
                raise NotAnOperation(f"{_show(step)} is neither a send nor a poll")
    return {"sends": tuple(sends), "reads": tuple(reads)}


def _send(key: Any, sent: Any) -> Send:
    """Read `[:send k v]` or `[:send k [offset v]]`; the offset may be nil."""
    offset = -1
    if isinstance(sent, list):
        if len(sent) != 2:
            raise NotAnOperation(f"{_show(sent)} is not an offset and a value")
        offset = -1 if sent[0] is None else _number(sent[0], "an offset")
        sent = sent[1]
    return Send(partition=_partition(key), value=_number(sent, "a value"), offset=offset)


def _read(key: Any, pairs: Any) -> Read:
    """Return the records of one key that a poll returned, as runs."""
    if not isinstance(pairs, list):
        raise NotAnOperation(f"the records polled of {_show(key)} are {_kind_of(pairs)}, no list")
    return Read(partition=_partition(key), records=tuple(runs_of(pairs)))


def runs_of(pairs: list[Any]) -> Iterator[RecordRun]:
    """Yield pairs of offset and value as runs, in which both rise by one from record to record."""
    offset = value = count = 0
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise NotAnOperation(f"{_show(pair)} is not an offset and a value")
        at, what = pair
        if type(at) is not int or type(what) is not int or not 0 <= at <= _LIMIT >= what >= 0:
            at = _number(at, "an offset")
            # A message without a value counts as unreadable, which a negative value stands for.
            what = -1 if what is None else _number(what, "a value")
        if count and value >= 0 and (at, what) == (offset + count, value + count):
            count += 1
            continue
        if count:
            yield RecordRun(offset, value, count)
        offset, value, count = at, what, 1
    if count:
        yield RecordRun(offset, value, count)


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


def _number(value: Any, what: str) -> int:
    if type(value) is int and 0 <= value <= _LIMIT:
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotAnOperation(f"{what} is {_show(value)}, not a number")
    if not 0 <= value <= _LIMIT:
        raise NotAnOperation(f"{what} is {value}, outside 0 .. {_LIMIT}")
    return value


def _isolation(level: Any) -> Isolation:
    """Return the isolation of a reader: a word, or a keyword, with either kind of dash."""
    named: Any = level.strip(':"').replace("-", "_") if isinstance(level, str) else level
    if named not in _ISOLATIONS:
        raise NotAnOperation(f":isolation is {_show(level)}, not read_[un]committed")
    isolation: Isolation = named
    return isolation


def _error(form: Mapping[str, Any]) -> str:
    error = form.get("error")
    try:
        return "" if error is None else _show(_unquoted(error))
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
