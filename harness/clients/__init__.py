"""Clients of a log as pure state machines, and the workloads that they carry out."""
