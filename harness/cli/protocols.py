"""`floodmark protocols`: the replication protocols of our brokers."""

from __future__ import annotations

from harness.cli.common import print_table
from harness.formats.options import ListRequest


def protocols(request: ListRequest) -> None:
    """List the replication protocols and what each may break."""
    from node.core.protocol import REGISTRY

    rows = [
        (
            protocol.name,
            protocol.citation,
            ", ".join(name for name, expected in protocol.expected if expected == "violable"),
        )
        for protocol in REGISTRY.values()
    ]
    print_table(("protocol", "source", "may break"), rows, json=request.json)
