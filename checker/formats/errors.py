"""Errors of the checker: each message is one sentence that a person at a terminal can act on."""

from __future__ import annotations

from node.formats.errors import FloodmarkError


class CheckerError(FloodmarkError):
    """An error of the checker itself, which says nothing about the run that was to be judged."""


class SparkMissing(CheckerError):
    """An error: PySpark is not installed."""


class JavaMissing(CheckerError):
    """An error: there is no Java on this machine that Spark can use."""


class SparkStartError(CheckerError):
    """An error: there is a Java, but no Spark session could be started on it."""
