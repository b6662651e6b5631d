"""The formats that the broker writes and other packages read: errors, messages on the wire, trace
events, dumped logs. Imports only other formats."""
