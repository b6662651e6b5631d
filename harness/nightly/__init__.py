"""Nightly runs: searches, storms and replays for hours, in a journal and on one page."""
