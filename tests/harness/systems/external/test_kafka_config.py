"""The configurations of Kafka's servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.systems.adapter import Node
from harness.systems.external.kafka_config import number, of_old_broker, of_zookeeper, zookeeper_of

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
