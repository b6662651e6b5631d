"""Errors of the checker: each message is one sentence that a person at a terminal can act on."""

from __future__ import annotations

EXIT_HARNESS_ERROR = 70


class CheckerError(Exception):
    """The checker could not do its work; this says nothing about the checked run.

    Attributes:
        exit_code: what the command exits with when this error ends it.
    """

    exit_code: int = EXIT_HARNESS_ERROR


class JavaMissing(CheckerError):
    """There is no Java on this machine that Spark can use."""


class SparkStartError(CheckerError):
    """Java was found, but a Spark session could not be started on it."""
