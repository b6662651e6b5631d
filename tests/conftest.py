"""Fixtures that several test files share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from checker.spark import start_session


@pytest.fixture
def spark() -> SparkSession:
    """A small local session; the JVM behind it is started once and shared by all tests."""
    return start_session("floodmark tests")
