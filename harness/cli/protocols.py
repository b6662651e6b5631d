"""`floodmark protocols`: the replication protocols of our brokers."""

from __future__ import annotations

from harness.cli.common import Json, print_table


def protocols(json: Json = False) -> None:
    """List the replication protocols and the properties that each is known to break."""
    from node.core.protocol import REGISTRY

    rows = [
        (
            protocol.name,
            protocol.citation,
            ", ".join(name for name, expected in protocol.expected if expected == "violable"),
        )
        for protocol in REGISTRY.values()
    ]
    print_table(("protocol", "source", "may break"), rows, json=json)
