"""Links made of the kernel's own network: each node in a namespace, joined by routes, and nft rules
that drop or reset packets by sender and receiver.

Broker number i has the address 10.213.i.2 and voter number i 10.214.i.2; the clients, with the
harness, are 10.213.i.1 or 10.214.i.1 to it. So a pair of addresses identifies a link, and no
connection has to be looked up. TCP here is the kernel's: a SYN into a cut is not answered, and
after a heal senders repeat lost segments when their timers run out, at most a second later if the
kernel has an option for that."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final

from nemesis.formats.cluster_spec import is_voter
from nemesis.links import namespaces
from nemesis.links.abilities import KERNEL
from nemesis.links.namespaces import NetworkNamespace, program
from nemesis.links.rule import ANYONE, Counts, LinkRule
from nemesis.links.tcp_rules import CLIENTS, check_clients
from node.formats.errors import FloodmarkError

RETRANSMIT_MS: Final = 1000
_TABLE: Final = "floodmark"
_NETS: Final = ("10.213", "10.214")
"""The networks of brokers and of voters."""
_VERDICTS: Final = {
    "drop": ("", "drop"),
    # The resets that this rule sends pass here too.
    "reset": ("tcp flags & rst == 0", "reject with tcp reset"),
}
_HANDLE: Final = re.compile(r"# handle (\d+)")
_COUNTED: Final = re.compile(r"counter packets (?P<packets>\d+) .*# handle (?P<handle>\d+)")
_RULES: Final = f"""
add table ip {_TABLE}
delete table ip {_TABLE}
table ip {_TABLE} {{
  chain links {{ }}
  chain between {{ type filter hook forward priority 0; jump links; }}
  chain arriving {{ type filter hook input priority 0; tcp sport {{ SPARED }} accept; jump links; }}
  chain leaving {{ type filter hook output priority 0; tcp dport {{ SPARED }} accept; jump links; }}
}}
"""


class KernelLinks:
    """The network of one run, whose harness runs in namespaces of its own. Its methods are those of
    `nemesis.links.link_process.LinkProcess`: `add`, `remove`, `wait_ready`, `close`. `prefix` says
    how to start a node in its namespace. `problems` stays empty."""

    def __init__(
        self, nodes: Sequence[str], clients: Collection[str], spared_ports: Collection[int] = ()
    ) -> None:
        """Make the namespaces and routes of the nodes. `clients` share the addresses of the
        harness; no rule affects `spared_ports`, at which the harness queries the nodes. Raises
        FloodmarkError."""
        if not namespaces.inside():
            raise FloodmarkError("--links kernel: this process is in no namespace of its own")
        self._nodes = tuple(nodes)
        self._clients = frozenset(clients)
        self._spaces: dict[str, NetworkNamespace] = {}
        self._handles: dict[int, tuple[LinkRule, int]] = {}
        self._last_number = 0
        self.problems: list[str] = []
        try:
            self._build(spared_ports)
        except FloodmarkError:
            self.close()
            raise

    def wait_ready(self) -> None:
        """Return at once: kernel links are ready when they are made."""

    def set_processes(self, name: str, pids: Sequence[int]) -> None:
        """Ignore the processes of a node: its address identifies it."""

    def prefix(self, node: str) -> tuple[str, ...]:
        """Return the words before a node's command line that make it run in its namespace."""
        return self._spaces[node].prefix()

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; return its number. Raises FloodmarkError for an impossible one."""
        KERNEL.check(rule)
        check_clients(rule, self._clients)
        pairs = ", ".join(f"{source} . {target}" for source, target in self._pairs(rule))
        self._last_number += 1
        if pairs:
            only, verdict = _VERDICTS[rule.action]
            said = self._nft(
                f"add rule ip {_TABLE} links {only} ip saddr . ip daddr {{ {pairs} }} "
                f"counter {verdict}\n"
            )
            found = _HANDLE.search(said)
            if found is None:
                raise FloodmarkError(f"nft has not said which rule it made: {said}")
            self._handles[self._last_number] = rule, int(found.group(1))
        else:
            self._handles[self._last_number] = rule, 0
        return self._last_number

    def remove(self, number: int) -> Counts:
        """End a rule; return how many packets it dropped or answered with a reset. If it raises
        FloodmarkError, the rule can be removed again."""
        if number not in self._handles:
            raise FloodmarkError(f"there is no link rule {number}")
        _, handle = self._handles[number]
        packets = self._packets(handle) if handle else 0
        if handle:
            self._nft(f"delete rule ip {_TABLE} links handle {handle}\n")
        del self._handles[number]
        return Counts(of="packets", matched=packets, dropped=packets)

    def close(self) -> None:
        """Give up all namespaces. May be called twice."""
        for node, space in self._spaces.items():
            with suppress(FloodmarkError):  # The kernel would do it, but later.
                namespaces.run([program("ip"), "link", "delete", f"to-{node}"])
            space.close()

    def _build(self, spared_ports: Collection[int]) -> None:
        ip = program("ip")
        namespaces.run([ip, "link", "set", "lo", "up"])
        _write("/proc/sys/net/ipv4/ip_forward", "1")
        _bound_retransmission("")
        for node in self._nodes:
            space = self._spaces[node] = NetworkNamespace()
            name, (near, far) = f"to-{node}", _addresses(node)
            commands = f"link add {name} type veth peer name eth0 netns {space.path}\n"
            commands += f"addr add {near}/24 dev {name}\nlink set {name} up\n"
            namespaces.run([ip, "-batch", "-"], commands)
            commands = f"addr add {far}/24 dev eth0\nlink set eth0 up\nlink set lo up\n"
            # To no other address: the lookup of a name fails at once.
            commands += "".join(f"route add {net}.0.0/16 via {near}\n" for net in _NETS)
            namespaces.run([*space.prefix(), ip, "-batch", "-"], commands)
            _bound_retransmission(space.prefix())
        spared = ", ".join(map(str, sorted(spared_ports))) or "0"
        self._nft(_RULES.replace("SPARED", spared))

    def _pairs(self, rule: LinkRule) -> Iterator[tuple[str, str]]:
        """Yield the addresses of senders and receivers of the packets that a rule affects. A reset
        concerns a connection, which has packets in both directions."""
        directions = [(rule.senders, rule.receivers)]
        if rule.action == "reset":
            directions.append((rule.receivers, rule.senders))
        found: dict[tuple[str, str], None] = {}
        for senders, receivers in directions:
            for sender in self._meant(senders):
                for receiver in self._meant(receivers):
                    if sender == receiver:
                        continue
                    if CLIENTS in (sender, receiver):
                        near, far = _addresses(receiver if sender == CLIENTS else sender)
                        pair = (near, far) if sender == CLIENTS else (far, near)
                    else:
                        pair = _addresses(sender)[1], _addresses(receiver)[1]
                    found[pair] = None
        return iter(found)

    def _meant(self, side: Sequence[str]) -> list[str]:
        """Return the ends that a side of a rule names."""
        if ANYONE in side:
            return [*self._nodes, CLIENTS]
        clients = [CLIENTS] if self._clients.intersection(side) or CLIENTS in side else []
        return [*(node for node in self._nodes if node in side), *clients]

    def _packets(self, handle: int) -> int:
        listed = namespaces.run(
            [program("nft"), "--handle", "list", "chain", "ip", _TABLE, "links"]
        )
        for found in _COUNTED.finditer(listed):
            if int(found["handle"]) == handle:
                return int(found["packets"])
        raise FloodmarkError(f"nft does not know rule {handle} any more")

    def _nft(self, commands: str) -> str:
        return namespaces.run([program("nft"), "--echo", "--handle", "--file", "-"], commands)


def address(node: str) -> str:
    """Return the IP address of a node."""
    return _addresses(node)[1]


def _addresses(node: str) -> tuple[str, str]:
    """Return the two ends of the cable of a node: the harness's, and the node's."""
    net = f"{_NETS[is_voter(node)]}.{int(node[1:])}"
    return f"{net}.1", f"{net}.2"


def _bound_retransmission(prefix: Sequence[str]) -> None:
    """Let senders use a healed link within a second, if the kernel has an option for it."""
    if os.path.exists(option := "/proc/sys/net/ipv4/tcp_rto_max_ms"):
        _write(option, str(RETRANSMIT_MS), prefix)


def _write(path: str, value: str, prefix: Sequence[str] = ()) -> None:
    namespaces.run([*prefix, "sh", "-c", f"cat > {path}"], value)
