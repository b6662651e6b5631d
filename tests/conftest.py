"""Fixtures that several test files share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests are about the sources, and some change what is in a module.
os.environ.setdefault("FLOODMARK_PURE", "1")

# No test depends on how busy the machine is, and each tries the same examples each time.
# `make slow` draws others, and more of them.
settings.register_profile("floodmark", deadline=None, derandomize=True, database=None)
settings.register_profile("drawn", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile("floodmark")


@pytest.fixture
def spark() -> SparkSession:
    """A small local session; the JVM behind it is started once and shared by all tests."""
    from checker.engine.spark_session import start_session

    return start_session("floodmark tests")
