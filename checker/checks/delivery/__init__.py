"""Definitions of the anomalies of consumer groups, as functions from operations to cases."""
