"""The search on real processes: storms are drawn, run, judged, and shrunk by further runs."""
