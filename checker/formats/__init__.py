"""Verdicts, timelines and the catalogue of anomalies, as the checker writes them.
Imports no other room."""
