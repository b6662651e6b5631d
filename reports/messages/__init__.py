"""The message diagram: the messages between clients and brokers, and the events that they cause."""
