"""Bounds of numbers and texts in messages and in metadata records.

A number from the wire is packed into a field of fixed size (a batch keeps its epoch in 4 bytes),
used for arithmetic on microseconds, written to the trace, or used as a key of the disk. Each has a
range in its type, so a message with a number out of its range is refused by its decoder, and no
later step can fail for it. Every range ends well below the size of its field, so that a node can
still count on from the number (the next term, the end of a batch)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MAX_EPOCH: Final = 2**30
"""The highest term or leader epoch that a message may name."""
LAST_EPOCH: Final = 2**31 - 1
"""The highest that a batch has room for; between the two is what nodes may add themselves."""
MAX_OFFSET: Final = 2**62
MAX_PRODUCER_EPOCH: Final = 2**30
"""Of an idempotent producer: so often it has begun its sequences at 0 again."""
MAX_PRODUCERS: Final = 1_000
"""Idempotent producers that a partition remembers."""
MAX_SEQUENCE: Final = 2**31 - 1
"""The highest end of a batch in the sequence of its producer."""
MAX_NODE_NAME: Final = 64
MAX_PARTITION_NAME: Final = 240
"""In bytes of ASCII: a key of the disk is such a name and a prefix."""
MAX_NODES: Final = 256
MAX_PARTITIONS: Final = 20_000
"""Of a whole cluster: one message and one metadata batch may name all of them."""
MAX_GROUP_PARTITIONS: Final = 1_000
"""That one message of a member of a group may name."""
MAX_WAIT_MS: Final = 2**31 - 1
MAX_FETCH_BYTES: Final = 16 << 20
DEFAULT_FETCH_BYTES: Final = 1 << 20

Correlation = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
Epoch = Annotated[int, msgspec.Meta(ge=-1, le=MAX_EPOCH)]
"""A term or leader epoch, -1 where there is none."""
Version = Annotated[int, msgspec.Meta(ge=-1, le=2**40)]
"""A partition epoch, which rises with each change of a partition; -1 where there is none."""
Offset = Annotated[int, msgspec.Meta(ge=-1, le=MAX_OFFSET)]
"""An offset of a log, or a broker epoch, which is one of the metadata log; -1: none."""
Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
"""An offset where there must be one."""
PrefixHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")]
"""A chained prefix hash in hexadecimal."""
Incarnation = Annotated[int, msgspec.Meta(ge=-1, le=2**31)]
Wait = Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)]
FetchBytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_FETCH_BYTES)]
Acks = Annotated[int, msgspec.Meta(ge=-1, le=1)]
LookupVersion = Annotated[int, msgspec.Meta(ge=-1, le=1)]
Copies = Annotated[int, msgspec.Meta(ge=0, le=MAX_NODES)]
"""A number of replicas."""
PartitionCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_PARTITIONS)]

NodeName = Annotated[str, msgspec.Meta(max_length=MAX_NODE_NAME)]
"""A node or client, "" where there is none."""
BrokerName = Annotated[str, msgspec.Meta(max_length=MAX_NODE_NAME, pattern=r"^[A-Za-z0-9._-]+\Z")]
"""A broker that enters the metadata."""
PartitionName = Annotated[str, msgspec.Meta(max_length=MAX_PARTITION_NAME)]
GroupPartitions = Annotated[
    tuple[PartitionName, ...], msgspec.Meta(max_length=MAX_GROUP_PARTITIONS)
]
StoredPartitionName = Annotated[
    str, msgspec.Meta(max_length=MAX_PARTITION_NAME, pattern=r"^[A-Za-z0-9._-]+\Z")
]
"""A partition that gets a log: its name becomes a key of the disk."""
Nodes = Annotated[tuple[NodeName, ...], msgspec.Meta(max_length=MAX_NODES)]
Sentence = Annotated[str, msgspec.Meta(max_length=100_000)]
"""Why a command was refused; it may name every node and partition that the command named."""

StoredEpoch = Annotated[int, msgspec.Meta(ge=-1, le=LAST_EPOCH)]
"""A leader epoch in a metadata record, where a node may have added to what it was told."""
