"""The story of a failure: the life of a record, the faults around it, and the rule that broke."""
