"""Faults: schedules as data, how they are drawn, and how they are injected.

Importing the package registers the kinds of faults, so that any schedule can be read."""

from nemesis import faults as _faults  # noqa: F401
