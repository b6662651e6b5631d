"""Clients of a log as pure state machines, and the workloads they carry out."""
