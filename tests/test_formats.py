"""The rules of every file format: a value survives, damage is refused, new fields are not."""

from __future__ import annotations

import importlib
import json
from typing import Any

import msgspec
import pytest

from tests.support.paths import ROOT

_, *FORMS = (ROOT / "tests/formats.txt").read_text("utf-8").split("\n\n")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.split()[0])
def test_format(form: str) -> None:
    head, *lines = form.splitlines()
    module, _, name = head.removesuffix(" strict").partition(":")
    kind = getattr(importlib.import_module(module), name)
    text = " ".join(line for line in lines if line.startswith("    "))
    value = msgspec.json.decode(text, type=kind)
    assert msgspec.json.decode(msgspec.json.encode(value), type=kind) == value
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    assert fields.items() >= json.loads(text).items(), "each field keeps its name"
    for line in lines:
        if not line.startswith("    "):
            name, _, wrong = line.strip().partition(" ")
            assert name in kind.__struct_encode_fields__
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(fields | {name: json.loads(wrong)}, kind)
    if head.endswith(" strict"):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.convert(fields | {"new_in_2": 1}, kind)
    else:
        assert msgspec.convert(fields | {"new_in_2": 1}, kind) == value
