"""The configurations of Kafka's servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.systems.adapter import Node
from harness.systems.external.kafka_config import (
    first_controllers,
    number,
    of_old_broker,
    of_zookeeper,
    zookeeper_of,
)

GIVEN = {"min_isr": "2", "unclean": "false"}


@pytest.mark.parametrize("members", ["0", "3"])
def test_the_address_of_zookeeper_is_read_from_the_settings_of_a_broker(
    members: str, tmp_path: Path
) -> None:
    voter = Node("v1", tmp_path, {"client": 2181}, {"client": 2182})
    broker = Node("n1", tmp_path, {"client": 9092}, {"client": 9093})
    settings = of_old_broker(broker, (voter,), {**GIVEN, "members": members})
    lines = "\n".join(map(str.strip, settings.splitlines())) + "\n"
    (tmp_path / "config").write_text(lines)
    assert zookeeper_of(broker) == "127.0.0.1:2182"
    assert f"broker.id={number(broker)}\n" in lines
    assert "clientPort=2181\n" in of_zookeeper(voter)


def test_disks_are_formatted_with_the_same_first_controllers(tmp_path: Path) -> None:
    n1, n2, v1 = (Node(n, tmp_path, {}, {"controller": 9000}) for n in ("n1", "n2", "v1"))
    both = "1@127.0.0.1:9000:AQEBAQEBAQEBAQEBAQEBAQ,2@127.0.0.1:9000:AgICAgICAgICAgICAgICAg"
    for me, other in ((n1, n2), (n2, n1)):
        assert first_controllers(me, [other]) == ["--initial-controllers", both]
        assert first_controllers(me, [other, v1]) == ["--no-initial-controllers"]
    assert first_controllers(v1, [n1, n2])[1].startswith("101@127.0.0.1:9000:")
    assert first_controllers(replace(n2, joins=True), [n1]) == ["--no-initial-controllers"]
