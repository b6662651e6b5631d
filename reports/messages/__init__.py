"""The message diagram: which message each event is the effect of."""
