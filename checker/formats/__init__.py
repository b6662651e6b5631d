"""Formats of the checker: verdicts, stories, the catalogue of anomalies. Imports no other room."""
