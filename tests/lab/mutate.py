"""Small changes to a source, of which the mutants of the checks are made."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any, Final

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_NAME: Final = {
    "OK": "INFO",
    "INFO": "FAIL",
    "FAIL": "OK",
    "READ_OK": "READ_OTHER",
    "READ_FINAL": "READ_OK",
    "minimum": "maximum",
    "maximum": "minimum",
    "min": "max",
    "max": "min",
    "first": "last",
    "last": "first",
    "all": "any",
    "any": "all",
    "invoke_us": "complete_us",
    "complete_us": "invoke_us",
}
OTHER_TEXT: Final = {"left": "right", "right": "left"}

Part = ast.expr | ast.stmt


def changes(node: ast.AST) -> Iterator[tuple[Part, Part]]:
    """Yield the small changes to one node: the part of it that changes, and what stands there."""
    match node:
        case ast.Compare(ops=[op, *others]) if other := COMPARISONS.get(type(op)):
            yield node, _with(node, ops=[other(), *others])
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            yield from ((node, left), (node, right))
        case ast.BinOp(op=ast.Add() | ast.Sub() as op) if not _is_text(node):
            yield node, _with(node, op=ast.Sub() if isinstance(op, ast.Add) else ast.Add())
        case ast.BoolOp(values=[*kept, _]):
            yield node, kept[0] if len(kept) == 1 else _with(node, values=kept)
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield node, operand
        case ast.AugAssign():
            yield node, ast.Pass()
        case ast.If(test=test, orelse=[]):
            yield test, ast.Constant(False)
        case ast.Attribute(attr=name) if other := OTHER_NAME.get(name):
            yield node, _with(node, attr=other)
        case ast.Name(id=name) if other := OTHER_NAME.get(name):
            if name.isupper() or name in ("min", "max", "any", "all"):
                yield node, ast.Name(other)
        case ast.Constant(value=str(text)) if other := OTHER_TEXT.get(text):
            yield node, ast.Constant(other)


def _with(node: Any, **fields: Any) -> Any:
    """Return a node with other fields."""
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(n, ast.JoinedStr | ast.List | ast.Dict) for n in ast.walk(node))


def replaced(text: str, old: Part, new: Part) -> str:
    """Return a source with `new` in the place of `old`."""
    lines = text.splitlines(keepends=True)
    before, after = "".join(lines[: old.lineno - 1]), "".join(lines[old.end_lineno or 0 :])
    first, last = (lines[at - 1].encode() for at in (old.lineno, old.end_lineno or 0))
    word = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
    around = first[: old.col_offset].decode(), last[old.end_col_offset :].decode()
    return f"{before}{around[0]}{word}{around[1]}{after}"
