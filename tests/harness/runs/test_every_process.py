"""Every process of a run is killed and stopped, its store fails, and each kind of fault is alone.

The laboratory kills thousands of times (`tests/lab/kill_campaign.py`). A case of the integration
tests takes some 8 s of processor time.
"""

from __future__ import annotations

import signal

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

KILL, STOP = signal.SIGKILL, signal.SIGSTOP


def alone(kind: str, protocol: str, world: str = "real") -> tuple[str, str]:
    """Run a storm of one kind of fault; return its outcome, and a sentence about it."""
    options = {"faults": kind, "protocol": protocol, "seed": "7100", "time_limit": "8"}
    return run_storm(options, world)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "form", "role"),
    [
        *((number, "plain", role) for number in (KILL, STOP) for role in ("hub", "clients")),
        (STOP, "plain", "n1"),
        pytest.param(KILL, "disk", "disk-n1", marks=pytest.mark.needs("fuse")),
        pytest.param(STOP, "disk", "disk-n1", marks=pytest.mark.needs("fuse")),
    ],
    ids=str,
)
def test_a_process_that_somebody_ends_or_suspends_is_named(
    number: signal.Signals, form: str, role: str
) -> None:
    assert run_case(Case(form, "storm", 0.2, "good", number, role=role))[1] == NAMED


@pytest.mark.integration
@pytest.mark.needs("fuse")
@pytest.mark.parametrize(
    ("phase", "delay_s"),
    [("starting the cluster", 1.0), ("storm", 0.75)],
    ids=["disks are mounted", "a power cut"],
)
def test_a_harness_that_is_killed_leaves_no_process_mount_or_file(
    phase: str, delay_s: float
) -> None:
    case = Case("disk", phase, delay_s, "good", KILL, role="harness")
    assert run_case(case)[1] in (NAMED, FINE)


@pytest.mark.integration
@pytest.mark.needs("pysyncobj")
def test_a_run_can_do_without_its_guardian() -> None:
    case = Case("proxy", "storm", 0.3, "good", KILL, role="guardian.py")
    assert run_case(case)[1] in (NAMED, FINE)


@pytest.mark.integration
def test_a_node_that_is_suspended_while_it_stops_has_not_hung() -> None:
    case = Case("plain", "stopping the cluster", 0.0, "good", STOP, role="n1")
    assert run_case(case)[1] in (NAMED, FINE, NEVER)


@pytest.mark.integration
@pytest.mark.needs("mount")
@pytest.mark.parametrize("store", ["full", "briefly full", "gone"])
def test_a_store_that_fails_in_the_storm_is_named(store: str) -> None:
    """The template, which is killed too, is no longer needed then."""
    case = Case("plain", "storm", 0.2, store, KILL, role="template")
    assert run_case(case)[1] == NAMED


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
