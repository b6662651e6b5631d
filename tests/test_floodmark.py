"""The public module: every name of `__all__` is there, and no other."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

import floodmark
from harness.systems import adapter
from tests.support import python_process
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", floodmark.__all__)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(floodmark, name)
    assert name in ("SERVER", "__version__") or found.__doc__


def test_all_types_that_an_adapter_exchanges_are_public() -> None:
    types = [each for each in vars(adapter).values() if isinstance(each, type)]
    exchanged = {each.__name__ for each in types if issubclass(each, msgspec.Struct)}
    assert exchanged - {*floodmark.__all__} == set()


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Cluster'"):
        floodmark.Cluster  # noqa: B018


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert floodmark.__version__ == project["project"]["version"]


def test_importing_the_module_imports_nothing_of_the_packages() -> None:
    script = "import sys, floodmark; print([m for m in sys.modules if m.startswith('harness')])"
    assert python_process.run("-c", script).stdout == "[]\n"
