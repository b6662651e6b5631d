"""The harness's end of the link hub."""

from __future__ import annotations

import msgspec

from nemesis.links.link_process import LinkProcess
from nemesis.links.rule import Counts


class HubConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a hub. Addresses are ZeroMQ's (ipc://path, tcp://127.0.0.1:port).

    `bind` is the address that nodes send to, `nodes` maps each node to its own address. `seed`
    draws losses and jitter. The hub dies with `parent_pid`, the process that started it. It writes
    its output to `output_file` ("": to its parent's), and messages that its rules dropped or held
    to `messages_file` ("": nowhere)."""

    bind: str
    nodes: dict[str, str]
    seed: int
    parent_pid: int
    output_file: str = ""
    messages_file: str = ""


class HubStats(msgspec.Struct, kw_only=True):
    """The messages that the hub has handled since its start. Messages dropped by a rule are only in
    the counts of that rule.

    `unreachable` counts, by receiver, messages dropped because it was not connected or its queue
    was full; `garbage` data that is no message to a known receiver; `overflow` messages that found
    no room in the queue of delayed and held ones. `delayed` and `held` are in that queue now.
    `rules` are the counts of the rules in force."""

    forwarded: int = 0
    garbage: int = 0
    overflow: int = 0
    delayed: int = 0
    held: int = 0
    unreachable: dict[str, int] = {}
    rules: dict[int, Counts] = {}


class HubControl(LinkProcess[HubStats]):
    """The hub of one run, as a process that ends with this one."""

    called = "link hub"
    process = "hub"

    def __init__(self, config: HubConfig) -> None:
        """Start the hub's process; `wait_ready` returns when it forwards messages."""
        from nemesis.links import hub

        super().__init__(hub.main, config, config.output_file, HubStats)
