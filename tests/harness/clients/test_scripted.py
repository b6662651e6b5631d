"""Clients that do what a schedule tells them: one operation after another, and nothing else."""

from __future__ import annotations

from harness.clients.factory import ClientFactory
from harness.clients.scripted import ScriptedConsumer, ScriptedProducer
from nemesis.formats.schedule import Cluster, Operation, Poll, Send, Workload
from node.core.messages import MetadataRequest, ProduceRequest
from tests.support.harness_script import Scripted, operator, records
from tests.support.paths import ROOT


def tell(client: Scripted, *operations: Operation) -> Scripted:
    for step, operation in enumerate(operations):
        client.session.operate(step, operation)
    return client.step()


def test_a_batch_is_sent_as_the_schedule_says_and_the_history_says_which_it_was() -> None:
    client = tell(operator(ScriptedProducer), Send(client="c1", count=10, acks=1)).leaders("n2")
    request = client.pending(ProduceRequest).message
    assert isinstance(request, ProduceRequest)
    assert request.acks == 1
    client.produced(offset=40)
    assert client.story() == ["send invoke", "send ok @40"]
    assert [(op.step, op.sends[0].count) for op in client.ops] == [(0, 10), (0, 10)]


def test_a_client_that_was_told_nothing_does_nothing() -> None:
    client = operator(ScriptedProducer).step().leaders("n1").after(5000)
    assert client.story() == []
    assert client.session.idle


def test_one_operation_waits_for_the_end_of_the_other_and_looks_again_who_leads() -> None:
    client = tell(operator(ScriptedProducer), Send(client="c1"), Send(client="c1")).leaders("n2")
    assert client.story() == ["send invoke"]
    assert not client.session.idle
    client.produced(offset=0).after(60)
    assert client.number_of(ProduceRequest) == 1
    assert client.number_of(MetadataRequest) == 2
    client.leaders("n3", epoch=2)
    assert client.pending(ProduceRequest).to == "n3"
    client.produced(offset=1)
    assert client.story() == ["send invoke", "send ok @0", "send invoke", "send ok @1"]
    assert client.session.idle


def test_a_send_without_acknowledgement_ends_unknown_at_once() -> None:
    client = tell(operator(ScriptedProducer), Send(client="c1", acks=0)).leaders("n2")
    assert client.story() == ["send invoke", "send info acks=0"]
    assert client.session.idle


def test_a_poll_goes_on_where_the_last_one_ended() -> None:
    poll = Poll(client="c1")
    client = tell(operator(ScriptedConsumer), poll).leaders("n1").fetched([records(0, 500)], hw=5)
    tell(client, poll).leaders("n1").fetched([records(5, 505)], hw=10)
    assert client.story()[2:] == [
        "poll invoke",
        "poll ok 0+5=500",
        "poll invoke",
        "poll ok 5+5=505",
    ]


def test_who_was_told_to_stop_drops_what_it_has_not_begun() -> None:
    client = tell(operator(ScriptedProducer), Send(client="c1"), Send(client="c1")).leaders("n2")
    client.session.stop()
    client.produced(offset=0).after(5000)
    assert client.story() == ["send invoke", "send ok @0"]
    assert client.session.idle


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
