"""Errors of the checker: each message is one sentence that a person at a terminal can act on."""

from __future__ import annotations

from node.formats.errors import FloodmarkError


class CheckerError(FloodmarkError):
    """The checker could not do its work; this says nothing about the checked run."""


class JavaMissing(CheckerError):
    """There is no Java on this machine that Spark can use."""


class SparkStartError(CheckerError):
    """Java was found, but a Spark session could not be started on it."""


def error_summary(error: Exception) -> str:
    """An error of Spark in one line; its text may be out of reach if the JVM has died."""
    try:
        lines = str(error).strip().split("\n")
    except Exception:
        lines = []
    # Py4J says first where it was called, and then what it was.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [lines[1].lstrip(": ")]
    return (lines[0].rstrip(".") if lines else "") or type(error).__name__
