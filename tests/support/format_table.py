"""The rules of every file format: a value survives, damage is refused, new fields are not."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest


class Format(NamedTuple):
    """`value` is an instance with no default left; `refused` are fields with values that a reader
    must not accept; `strict` formats refuse unknown fields, the others skip them."""

    value: msgspec.Struct
    refused: tuple[tuple[str, Any], ...]
    strict: bool = False

    def __repr__(self) -> str:
        return type(self.value).__name__


def check(form: Format) -> None:
    kind = type(form.value)
    text = msgspec.json.encode(form.value)
    assert msgspec.json.decode(text, type=kind) == form.value
    fields = msgspec.json.decode(text)
    for name, wrong in form.refused:
        assert name in kind.__struct_encode_fields__
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(fields | {name: wrong}, kind)
    if form.strict:
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.convert(fields | {"new_in_2": 1}, kind)
    else:
        assert msgspec.convert(fields | {"new_in_2": 1}, kind) == form.value
