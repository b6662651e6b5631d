"""What can go wrong: fault schedules as data, how to draw them, and how to inflict them.

Importing the package registers its faults, so that any schedule can be read."""

from nemesis import faults as _faults  # noqa: F401
