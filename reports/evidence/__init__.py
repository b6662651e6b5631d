"""The evidence of a run as pages draw it: operations, leaders, replicas, faults, and lines."""
