"""Every number of a schedule has bounds: one that no run could keep is refused where it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from nemesis.faults import KINDS
from nemesis.formats.schedule import Cluster, Timings, Workload, parse
from node.formats.errors import UsageError

ANY_SEED = "seed"


def whole_numbers(form: type[Any]) -> Iterator[str]:
    """Yield the fields of a form that are whole numbers."""
    info = msgspec.inspect.type_info(form)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        kind = field.type
        kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
        if any(isinstance(each, msgspec.inspect.IntType) for each in kinds):
            yield field.encode_name


def schedule(place: tuple[str, ...], number: int) -> bytes:
    """Return a schedule that says nothing but this number there."""
    value: Any = number
    for name in reversed(place):
        value = {name: value}
    return msgspec.json.encode({"floodmark_schedule": 1, **value})


PLACES = [
    *((("cluster", name)) for name in whole_numbers(Cluster)),
    *((("cluster", "timings", name)) for name in whole_numbers(Timings)),
    *((("workload", name)) for name in whole_numbers(Workload) if name != ANY_SEED),
]
FAULTS = [(what, name) for what, kind in KINDS.items() for name in whole_numbers(kind)]


@pytest.mark.parametrize("number", [9 * 10**18, -(9 * 10**18)])
@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_number_of_cluster_and_workload_has_bounds(place: tuple[str, ...], number: int) -> None:
    with pytest.raises(UsageError, match=place[-1]):
        parse(schedule(place, number))


@pytest.mark.parametrize("number", [9 * 10**18, -(9 * 10**18)])
@pytest.mark.parametrize(("what", "name"), FAULTS)
def test_a_number_of_a_fault_has_bounds(what: str, name: str, number: int) -> None:
    fault = {"what": what, "at_ms": 1} | {name: number}
    text = msgspec.json.encode({"floodmark_schedule": 1, "faults": [fault]})
    with pytest.raises(UsageError, match=name):
        parse(text)
