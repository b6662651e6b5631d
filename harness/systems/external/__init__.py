"""Support for third-party systems: see `harness.systems.adapter`."""
