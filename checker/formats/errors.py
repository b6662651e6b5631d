"""Errors of the checker: each message is one sentence that a person at a terminal can act on."""

from __future__ import annotations

from node.formats.errors import FloodmarkError


class CheckerError(FloodmarkError):
    """The checker could not do its work; this says nothing about the checked run."""


class SparkMissing(CheckerError):
    """PySpark is not installed."""


class JavaMissing(CheckerError):
    """There is no Java on this machine that Spark can use."""


class SparkStartError(CheckerError):
    """Java was found, but a Spark session could not be started on it."""
