"""Verdicts, anomalies and measures as the checker writes them."""
