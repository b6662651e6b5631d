"""The harness: clusters, clients, workloads, histories, and the command line."""

from harness.sim import compiled

compiled.use()
