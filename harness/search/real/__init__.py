"""Blind search on real processes: storms drawn, run, judged, shrunk by running them again."""
