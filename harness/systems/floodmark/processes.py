"""The modules that the processes of our brokers import: nodes, clients and the link hub.

Each of them is forked by a template process (`node.runtime.template`), which imports it once.
"""

from __future__ import annotations

from typing import Final

from node.runtime import template

MODULES: Final = (
    # First, for it decides whether compiled modules are used.
    "harness",
    "node.runtime.process",
    "node.core.broker",
    "harness.systems.floodmark.client_process",
    "nemesis.links.hub",
)


def prepare() -> None:
    """Start the template process if it does not run; return without waiting until it is ready."""
    template.prepare(MODULES)
