"""The discipline of clients, as short scripts: what may be claimed of an operation, and when.

`python -m tests.support.scripts` says how to read the files in `scripts/`."""

from __future__ import annotations

from harness.clients.factory import ClientFactory
from nemesis.formats.schedule import Cluster, Poll, Send, Workload
from tests.support.paths import ROOT
from tests.support.scripts import beside, proving

test_script = proving(beside(__file__))


def test_they_are_numbered_after_the_other_clients_and_before_the_final_readers() -> None:
    workload = Workload(
        clients=1,
        consumers=1,
        in_flight=3,
        operations=(Poll(client="c4", at_ms=0), Send(client="c3", at_ms=0)),
    )
    factory = ClientFactory(cluster=Cluster(partitions=1), workload=workload)
    assert factory.roles == {
        "c1": "producer",
        "c2": "consumer",
        "c3": "scripted-producer",
        "c4": "scripted-consumer",
        "c5": "final-reader",
    }
    formats = (ROOT / "docs/file-formats.md").read_text()
    assert all(f"`{role}`" in formats for role in factory.roles.values())
    assert factory.working == ("c1", "c2", "c3", "c4")
    assert factory.writing == ("c1", "c3", "c4")
    sessions = factory.sessions(iter(range(10)).__next__)
    readers = factory.final_readers(iter(range(10)).__next__, {"log-0": 0})
    everybody = {**sessions, **readers}.values()
    numbers = [thread.process for session in everybody for thread in session._threads]
    assert len(numbers) == len(set(numbers)) == 7
