"""No message ends a broker: every field of every kind has bounds, and what decodes is survived."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.core import protocol
from node.core.api import Deliver, Tick
from node.formats import wire
from node.formats import wire as wire_format
from node.formats.errors import InvariantBroken, WireError
from node.formats.messages import AnyMessage
from node.runtime.tables import MAX_NAME_BYTES
from tests.support.world import World

KINDS: tuple[type[AnyMessage], ...] = AnyMessage.__args__  # type: ignore[attr-defined]
TAGS = {str(kind.__struct_config__.tag): kind for kind in KINDS}
EXTREMES = (0, 1, -1, -2, 2**30, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
Path = tuple[str | int, ...]


def framed(fields: dict[str, Any]) -> list[bytes]:
    return [wire_format.envelope("n1", "n2", msgspec.msgpack.encode(fields))]


def sample(kind: Any) -> Any:
    """Return a value of a type that is in its bounds."""
    i = msgspec.inspect
    match kind:
        case i.IntType():
            return 1
        case i.BoolType():
            return True
        case i.StrType(pattern=pattern):
            return "0" * 16 if pattern else "n1"
        case i.EnumType():
            return ""
        case i.UnionType(types=types):
            return sample(next(each for each in types if not isinstance(each, i.NoneType)))
        case i.TupleType(item_types=types):
            return [sample(each) for each in types]
        case i.VarTupleType(item_type=each):
            return [sample(each)]
        case i.DictType(key_type=key, value_type=value):
            return {sample(key): sample(value)}
    raise AssertionError(kind)


def leaves(kind: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every place of a type that holds a number or a text, and every list."""
    i = msgspec.inspect
    match kind:
        case i.IntType() | i.StrType():
            yield path, kind
        case i.UnionType(types=types):
            for each in types:
                yield from leaves(each, path)
        case i.TupleType(item_types=types):
            for number, each in enumerate(types):
                yield from leaves(each, (*path, number))
        case i.VarTupleType(item_type=each):
            yield path, kind
            yield from leaves(each, (*path, 0))
        case i.DictType(key_type=key, value_type=value):
            yield path, kind
            assert isinstance(key, i.StrType)
            assert key.max_length
            yield from leaves(value, (*path, "n1"))


def fields_of(kind: type[AnyMessage]) -> tuple[msgspec.inspect.Field, ...]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def with_value(fields: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = msgspec.msgpack.decode(msgspec.msgpack.encode(fields))
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize("kind", KINDS, ids=TAGS)
def test_every_field_has_bounds_and_they_are_enforced(kind: type[AnyMessage]) -> None:
    i = msgspec.inspect
    sound = {"kind": kind.__struct_config__.tag}
    sound |= {field.encode_name: sample(field.type) for field in fields_of(kind)}
    wire.decode(framed(sound))
    for field in fields_of(kind):
        for path, leaf in leaves(field.type, (field.encode_name,)):
            bad: list[Any] = []
            match leaf:
                case i.IntType(ge=low, le=high):
                    assert None not in (low, high), f"{path} has no bounds"
                    for inside in (low, high):
                        wire.decode(framed(with_value(sound, path, inside)))
                    bad = [one for one in (low - 1, high + 1, *EXTREMES) if not low <= one <= high]
                case i.StrType(max_length=None, pattern=str()):
                    bad = ["0" * 15, "0" * 17, "g" * 16]
                case i.StrType(max_length=longest):
                    assert longest is not None, f"{path} has no bounds"
                    bad = ["n" * (longest + 1)]
                case i.VarTupleType(max_length=longest) | i.DictType(max_length=longest):
                    assert longest is not None, f"{path} has no bounds"
            for value in [*bad, 1.5, [[]], None if path[-1] != "diverging" else "x"]:
                with pytest.raises(WireError):
                    wire.decode(framed(with_value(sound, path, value)))


# -- what decodes is survived ---------------------------------------------------------------------


def put(disk: SimDisk, key: str, value: bytes, *, durable: bool) -> None:
    """Refuse the keys that LMDB refuses."""
    assert 0 < len(key.encode()) <= MAX_NAME_BYTES
    _put(disk, key, value, durable=durable)


_put = SimDisk.put


def forged(body: bytes, rng: random.Random) -> bytes:
    """Return a body with one number of its prefix or a header replaced; checksums are right."""
    whole = bytearray(body)
    if len(whole) < 16 or rng.random() < 0.1:
        return bytes(rng.randbytes(rng.randrange(40)))
    at = rng.choice([0, 8] if len(whole) < 41 else [0, 8, 16, 24, 37, 41])
    size = {24: 4, 37: 4, 41: 1}.get(at, 8)
    number = rng.choice([*EXTREMES, rng.randrange(2**64)]) % 2 ** (8 * size)
    whole[at : at + size] = number.to_bytes(size, "big")
    if len(whole) > 41:
        length = int.from_bytes(whole[29:33], "big")
        count = int.from_bytes(whole[37:41], "big")
        whole[33:37] = zlib.crc32(
            bytes(whole[41 : 41 + length]), zlib.crc32(count.to_bytes(4, "big"))
        ).to_bytes(4, "big")
    return bytes(whole)


class Attack:
    """Mutated copies of the messages of a cluster, sent in the name of their senders."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._heard: list[tuple[str, str, AnyMessage, bytes | None]] = []
        self.refused = self.delivered = self.stopped = 0
        world.drop = self._listen

    def _listen(self, source: str, to: str, message: AnyMessage) -> bool:
        self._heard.append((source, to, message, None))
        return False

    def strike(self, times: int) -> None:
        """Send that many, each made of something said lately, or of nothing."""
        rng, nodes = self._rng, self._world.nodes
        lately = self._heard[-300:]
        for _ in range(times):
            source, to, message, _ = rng.choice(lately)
            fields = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
            if rng.random() < 0.3:
                kind = rng.choice(KINDS)
                fields = {"kind": kind.__struct_config__.tag}
                fields |= {f.encode_name: sample(f.type) for f in fields_of(kind)}
            name = rng.choice(sorted(fields.keys() - {"kind"}))
            fields[name] = self._mutated(fields[name])
            if "partition" in fields and rng.random() < 0.5:
                fields["partition"] = rng.choice(["log-0", "__cluster_metadata-0"])
            self._deliver(rng.choice([source, *nodes]), rng.choice([to, *nodes]), fields)
            self._answer_a_fetch()

    def _answer_a_fetch(self) -> None:
        """In the name of its leader, the very answer that a follower waits for, but for one field
        or some bytes."""
        rng = self._rng
        node = rng.choice(list(self._world.nodes.values()))
        r = rng.choice([node.quorum.r, *node.replicas.values()])
        fields: dict[str, Any] = {
            "kind": "fetch-response",
            "partition": r.partition,
            "offset": r.leo,
            "last_epoch": rng.choice([r.log.last_epoch, -1]),
            "request_epoch": r.leader_epoch,
            "diverging": rng.choice([None, None, [1, r.leo - 1], [0, 0]]),
            "leader": r.leader,
        }
        if rng.random() < 0.3:
            name = rng.choice(sorted(fields.keys() - {"kind"}))
            fields[name] = self._mutated(fields[name])
        batch = batches.stamp(batches.build(2, b"two"), r.leo, r.leader_epoch)
        body = wire_format.fetch_body(r.leader_epoch, r.hw, [batch] * rng.randrange(2))
        body = forged(body, rng) if rng.random() < 0.8 else body
        self._deliver(r.leader or "n1", node.ctx.node, fields, body)

    def _mutated(self, value: Any) -> Any:
        rng = self._rng
        match value:
            case bool():
                return not value
            case int():
                near = value + rng.choice([-2, -1, 1, 2, 7])
                return rng.choice([near, near, *EXTREMES, rng.randrange(2**40)])
            case str():
                return rng.choice(["", "n1", "n2", "v1", "log-0", "x" * rng.randrange(300), "\0"])
            case list() if value:
                return [self._mutated(each) for each in value]
            case dict():
                return {self._mutated(key): each for key, each in value.items()}
        return rng.choice([[], None, [1, 1], [0, 0], {}])

    def _deliver(
        self, source: str, to: str, fields: dict[str, Any], body: bytes | None = None
    ) -> None:
        try:
            _, _, message, _ = wire.decode(framed(fields))
        except WireError:
            self.refused += 1
            return
        node = self._world.nodes.get(to)
        if node is None:
            return
        self.delivered += 1
        if body is None and fields["kind"] in ("produce", "fetch-response"):
            batch = batches.build(2, b"two") * self._rng.randrange(2)
            body = forged(wire_format.fetch_body(1, 0, [batch]), self._rng)
            body = body[16:] if fields["kind"] == "produce" else body
        try:
            for event in (Deliver(source, message, body), Tick()):
                effects = node.step(self._world.now_us, event)
                for one in effects.trace:
                    msgspec.json.encode(one)
                for out in effects.messages:
                    self._world.send(to, out.to, out.message, out.body)
        except InvariantBroken:
            # Only the node that leads can say what no log may follow; a broker stops at that.
            self.stopped += 1
            assert source in {r.leader for r in (*node.replicas.values(), node.quorum.r)}
            self._world.kill(to)
            self._world.start(to)


@pytest.mark.parametrize("name", protocol.REGISTRY)
def test_a_cluster_survives_any_message_that_decodes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimDisk, "put", put)
    rng = random.Random(f"attack/{name}")
    world = World(1, voters=3, protocol=name, check_invariants=False)
    attack = Attack(world, rng)
    world.create_topic(partitions=2, groups=True)
    for corr in range(5):
        world.produce(world.leader("log-0") or "n1", "log-0", corr, b"payload")
        attack.strike(200)
        world.run_for(50)
    assert attack.refused > 300, vars(attack)
    assert attack.delivered > 900, vars(attack)
    assert set(world.nodes) == set(world.disks)
