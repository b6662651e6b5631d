"""Leaders, in-sync replicas and high watermarks over time."""
