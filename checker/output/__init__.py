"""Findings become a verdict, measures and a timeline. Imports all rooms but `engine`."""
