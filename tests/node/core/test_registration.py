"""Registrations whose answers are lost, late or interrupted, in a whole cluster."""

from __future__ import annotations

from node.core.messages import Error, Heartbeat, RegisterBroker, RegisterBrokerResponse
from tests.support.broker_world import World

# -- in a cluster ---------------------------------------------------------------------------------


def test_an_answer_that_is_lost_does_not_cost_the_last_replica_its_place() -> None:
    """n1 restarts; the controller registers it, the answer is lost, n1 restarts again. Nothing of
    its data was lost at any time, so it must lead again."""
    world = World(3, brokers=1)
    world.run_for(500)
    world.create_topic(rf=1, min_isr=1)
    world.produce("n1", "log-0", 1, b"x")
    world.run_for(100)
    world.kill("n1")
    world.run_for(2000)
    world.start("n1")
    world.drop = lambda source, to, message: (
        isinstance(message, RegisterBrokerResponse) and message.error is Error.NONE
    )
    world.run_for(50)
    world.kill("n1")
    world.drop = lambda *_: False
    world.start("n1")
    world.run_for(5000)
    assert world.leader("log-0") == "n1"


def test_a_process_that_lost_data_and_died_before_it_could_say_so_is_not_forgotten() -> None:
    """n1's second process starts after a power cut and dies before it registers; its third lost
    nothing, but must not be taken for the successor of the first."""
    world = World(4, flush_interval_ms=100_000)
    world.run_for(500)
    world.create_topic()
    world.run_for(1000)
    for name in ("n2", "n3"):
        world.kill(name)
        world.run_for(2000)
    assert world.nodes["v1"].ctx.image.partitions["log-0"].isr == ("n1",)
    world.produce("n1", "log-0", 1, b"only here", acks=1)
    world.run_for(100)
    world.kill("n1")
    world.disks["n1"].power_cut(0)
    world.run_for(2000)
    world.isolate("n1")
    world.start("n1")
    world.run_for(50)
    world.kill("n1")
    world.cut.clear()
    world.start("n1")
    world.run_for(3000)
    state = world.nodes["v1"].ctx.image.partitions["log-0"]
    assert "n1" in state.last_known_elr
    assert "n1" not in (*state.isr, *state.elr)


def test_a_restart_in_the_middle_of_a_registration_is_survived() -> None:
    """The first process's registration arrives after the second's, before its first heartbeat."""
    world = World(5)
    world.run_for(500)
    world.create_topic()
    world.kill("n1")
    world.run_for(2000)
    world.hold = lambda source, to, message: isinstance(message, RegisterBroker)
    world.start("n1")
    world.run_for(5)
    world.kill("n1")
    world.hold = lambda source, to, message: isinstance(message, Heartbeat) and source == "n1"
    registrations, world.held = world.held, []
    world.start("n1")
    world.run_for(20)
    world.held = registrations + world.held
    world.hold = lambda *_: False
    world.release()
    world.run_for(5000)
    assert world.nodes["v1"].ctx.image.is_active("n1")
    assert world.nodes["v1"].ctx.image.partitions["log-0"].isr == ("n1", "n2", "n3")
