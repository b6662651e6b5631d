"""The coordinator of consumer groups: a pure state machine over the records of one partition."""
