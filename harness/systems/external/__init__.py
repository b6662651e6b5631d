"""Everything about other people's systems that is not theirs: see `harness.systems.adapter`."""
