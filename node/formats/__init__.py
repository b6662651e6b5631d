"""Formats that the broker writes and others read: errors, trace events. Imports only formats."""
