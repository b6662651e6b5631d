"""Authorization of senders by the names in a node's configuration.

A message speaks for its sender only: a broker registers, fetches and proposes for itself, only
nodes answer nodes, and only the harness commands the controller. The sender's name is verified
before, by the world that carries messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from node.core.api import NodeConfig
from node.formats.messages import (
    CONSUMER,
    AdminRequest,
    AlterPartition,
    AnyMessage,
    EpochEndRequest,
    FetchRequest,
    GroupHeartbeat,
    Heartbeat,
    MetadataRequest,
    OffsetCommit,
    OffsetFetch,
    ProduceRequest,
    RegisterBroker,
    ReportLeader,
)
from node.formats.wire import ADMIN

Test = Callable[["Senders", str, Any], bool]


class Senders:
    """The names of the brokers and voters of one cluster, and what each sender may send."""

    def __init__(self, config: NodeConfig) -> None:
        self.brokers = frozenset(config.brokers)
        self.nodes = frozenset((*config.brokers, *config.voters))

    def permit(self, source: str, message: AnyMessage) -> bool:
        """Return whether `source` may send this message."""
        test = _TESTS.get(type(message))
        return source in self.nodes if test is None else test(self, source, message)


def _replica(
    senders: Senders, source: str, message: FetchRequest | EpochEndRequest | ReportLeader
) -> bool:
    return message.replica == source and source in senders.nodes


def _broker(
    senders: Senders, source: str, message: RegisterBroker | Heartbeat | AlterPartition
) -> bool:
    return message.broker == source and source in senders.brokers


_TESTS: Final[dict[type, Test]] = {
    **dict.fromkeys(
        (ProduceRequest, MetadataRequest, GroupHeartbeat, OffsetCommit, OffsetFetch),
        lambda senders, source, m: True,
    ),
    FetchRequest: lambda senders, source, m: m.replica == CONSUMER or _replica(senders, source, m),
    EpochEndRequest: _replica,
    ReportLeader: _replica,
    RegisterBroker: _broker,
    Heartbeat: _broker,
    AlterPartition: _broker,
    **dict.fromkeys(AdminRequest.__args__, lambda senders, source, m: source == ADMIN),
}
"""Every other kind is between nodes."""
