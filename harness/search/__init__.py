"""Looks for the schedule that breaks a protocol, and cuts it down to the few faults that matter."""
