"""`floodmark systems`: what can be put under test."""

from __future__ import annotations


def systems() -> None:
    """List the systems under test and the faults each supports."""
    from harness.systems import registry

    for name in registry.names():
        system = registry.find(name)
        print(f"{name} {system.version()}".rstrip() + f": {system.summary}")
        print(f"  faults: {', '.join(system.faults)}")
