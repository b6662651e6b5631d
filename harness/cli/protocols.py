"""`floodmark protocols`: the replication protocols of our brokers."""

from __future__ import annotations


def protocols() -> None:
    """List the replication protocols and what each is known to break."""
    from node.core.protocol import REGISTRY

    for protocol in REGISTRY.values():
        broken = [name for name, expected in protocol.expected if expected == "violable"]
        known = f"; known to break {', '.join(broken)}" if broken else ""
        print(f"{protocol.name}: {protocol.citation}{known}")
