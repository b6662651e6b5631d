"""Every process of a run is killed and stopped, its store fails, and each kind of fault is alone.

The laboratory kills thousands of times (`tests/lab/kill_campaign.py`). A case of the integration
tests takes some 8 s of processor time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.core import protocol
from tests.lab.kill_campaign import FINE, NAMED, NEVER, Case, run_case, run_number
from tests.lab.storms import (
    BUSY,
    EXERCISED,
    LOOK,
    NOT_EXERCISED,
    drawn_kinds,
    pairs_of_options,
    run_storm,
)

NEEDS = {"disk": "fuse", "proxy": "pysyncobj"}


def cases() -> Iterator[Any]:
    """Yield the cases of cases.txt, with the results that are right."""
    _, *lines = Path(__file__).with_name("cases.txt").read_text("utf-8").splitlines()
    for line in lines:
        what, _, results = line.partition(": ")
        form, store, number, role, delay_s, phase = what.split(maxsplit=5)
        case = Case(form, phase, float(delay_s), store, signal.Signals[number], role=role)
        needed = NEEDS.get(form, "mount" if store != "good" else "")
        marks = [pytest.mark.needs(needed)] if needed else []
        yield pytest.param(case, results.split(" or "), id=what, marks=marks)


@pytest.mark.integration
@pytest.mark.parametrize(("case", "results"), [*cases()])
def test_a_process_is_ended_or_suspended(case: Case, results: list[str]) -> None:
    assert run_case(case)[1] in results


def alone(kind: str, protocol: str, world: str = "real") -> tuple[str, str]:
    """Run a storm of one kind of fault; return its outcome, and a sentence about it."""
    options = {"faults": kind, "protocol": protocol, "seed": "7100", "time_limit": "8"}
    return run_storm(options, world)


def tier(name: str) -> str:
    return "integration" if name in ("kafka", "quorum") else "nightly"


@pytest.mark.needs("fuse")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=getattr(pytest.mark, tier(n))) for n in protocol.REGISTRY]
)
def test_brokers_whose_disk_cannot_be_read_end_as_expected(name: str) -> None:
    """Their store is mapped into memory: they end by SIGBUS."""
    result, sentence = alone("read-error", name)
    assert result in (EXERCISED, BUSY), sentence


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(10))
def test_any_process_in_any_phase(number: int) -> None:
    what, result = run_number(number)
    assert result in (NAMED, FINE, NEVER), what


@pytest.mark.nightly
@pytest.mark.parametrize("kind", drawn_kinds())
def test_a_kind_of_fault_alone_in_the_simulated_world(kind: str) -> None:
    for name in protocol.REGISTRY:
        result, sentence = alone(kind, name, "simulated")
        assert result in (EXERCISED, NOT_EXERCISED, "impossible"), f"{name}: {sentence}"


@pytest.mark.nightly
def test_some_of_the_storms_that_have_all_pairs_of_options() -> None:
    for options in pairs_of_options()[::10]:
        result, sentence = run_storm(options, "real")
        assert result in (EXERCISED, NOT_EXERCISED, BUSY, LOOK), (options, sentence)


@pytest.mark.nightly
@pytest.mark.parametrize("system", ["etcd", "nats", "pysyncobj", "redis"])
def test_one_node_of_another_system_is_stormed(system: str) -> None:
    options = {"system": system, "faults": "pause", "brokers": "1", "time_limit": "4"}
    for seed in "123":
        # A pause finds no leader if its moment comes before the first answer of the probe.
        result, sentence = run_storm(options | {"seed": seed}, "real")
        if result != NOT_EXERCISED:
            break
    assert result in (EXERCISED, BUSY), sentence
