"""Findings become a verdict, measures and a timeline."""
