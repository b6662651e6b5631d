"""What the messages of one turn have in common is done once, after the last of them."""

from __future__ import annotations

from node.core import batch as batches
from node.core.messages import AnyMessage, Error, FetchResponse
from node.formats.wire import split_fetch_body
from tests.support.broker_world import World

PARTITION = "log-0"
SENDS = (1, 2, 3, 4)


def test_a_follower_gets_all_that_a_turn_has_appended_in_one_response() -> None:
    world = World()
    world.create_topic()
    leader = world.leader(PARTITION)
    assert leader is not None
    world.run_for(100)

    def to_followers(source: str, to: str, message: AnyMessage) -> bool:
        about_it = isinstance(message, FetchResponse) and message.partition == PARTITION
        return about_it and source == leader and to in world.broker_names

    world.pause(leader)
    for corr in SENDS:
        world.produce(leader, PARTITION, corr, b"record %d" % corr)
    world.run_for(20)
    world.hold = to_followers
    world.resume(leader)
    batches_of = {
        to: len(batches.split(split_fetch_body(body)[2])) for _, to, _, body in world.held
    }
    assert sorted(batches_of) == sorted(set(world.broker_names) - {leader})
    assert len(world.held) == len(batches_of), "one response each"
    assert set(batches_of.values()) == {len(SENDS)}

    world.hold = lambda *_: False
    world.release()
    world.run_for(1000)
    answers = world.answers()
    assert [answers[corr].error for corr in SENDS] == [Error.NONE] * len(SENDS)
