"""The options of a command, made of the fields of its request.

A command is a function of one parameter, a msgspec struct. Its fields with a description, in a text
below the field or by their type, are the options: `--retention-records` for `retention_records`; a
flag `--quiet` for a bool that is False, `--no-report` for one that is True; a repeatable option for
a tuple or a mapping. A field without a default is an argument. A field that is a struct itself
contributes its own fields."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import typer

from harness.cli.values import NameAndValue, ValueKind, kind_of
from harness.formats.options import settings_of

Command = Callable[[Any], int | None]
_META: Final = ("ge", "gt", "le", "pattern", "description")


class Option(NamedTuple):
    """An option or argument: its field, spelling, kind of values (None for a flag), and help."""

    owner: type[msgspec.Struct]
    field: str
    written: str
    kind: ValueKind | None
    repeats: bool
    is_argument: bool
    default: Any
    help: str

    def checked(self, given: Any) -> Any:
        """Return the value that Typer passes. Raises UsageError if the field cannot have it."""
        if is_given(given):
            self.value(given)
        return given

    def value(self, given: Any) -> Any:
        """Return a field's value for the text that Typer passes. Raises UsageError."""
        if self.kind is None:
            return not self.default
        if not self.repeats:
            return self.kind.convert(given, self.written)
        values = [self.kind.convert(each, self.written) for each in given]
        return settings_of(values) if isinstance(self.kind, NameAndValue) else tuple(values)

    def parameter(self) -> inspect.Parameter:
        """Return the parameter from which Typer makes the option."""
        hint: Any = bool if self.kind is None else list[str] if self.repeats else str
        name = self.written.strip("-").replace("-", "_").lower()
        metavar = None if self.kind is None else self.kind.metavar
        about: Any
        if self.is_argument:
            about = typer.Argument(
                help=self.help, metavar=self.written, callback=self.checked, show_default=False
            )
        else:
            about = typer.Option(
                self.written,
                help=self.help,
                metavar=metavar,
                callback=self.checked,
                show_default=False,
            )
        is_needed = self.default is msgspec.NODEFAULT
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=... if is_needed else False if self.kind is None else None,
            annotation=Annotated[hint if is_needed or hint is bool else hint | None, about],
        )


def as_command(function: Command) -> Callable[..., Any]:
    """Return a function for Typer with one parameter for each option, which calls `function` with
    the request that they make, if that passes its own `check`: before anything slow is imported. It
    does nothing if a subcommand is called."""
    request = request_of(function)
    options = [(option, option.parameter()) for option in options_of(request)]

    def run(context: typer.Context, **given: Any) -> int | None:
        if context.invoked_subcommand is not None:
            return 0
        made: Any = _made(request, [(option, given[p.name]) for option, p in options])
        if hasattr(made, "check"):
            made.check()
        return function(made)

    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    signature = inspect.Signature([context, *(parameter for _, parameter in options)])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    run.__doc__, run.__name__ = function.__doc__, function.__name__
    return run


def options_of(request: type[msgspec.Struct]) -> Iterator[Option]:
    """Yield the options of a request, in the order of its fields."""
    for field in msgspec.structs.fields(request):
        base, metas = parts(field.type)
        if isinstance(base, type) and issubclass(base, msgspec.Struct):
            yield from options_of(base)
            continue
        about = {name: v for m in metas for name in _META if (v := getattr(m, name)) is not None}
        if (text := described(request).get(field.name)) is not None:
            about["description"] = text
        if "description" not in about:
            continue
        extra = {name: value for m in metas for name, value in (m.extra or {}).items()}
        yield _option(request, field, base, about, extra)


@cache
def described(request: type[msgspec.Struct]) -> dict[str, str]:
    """Return the fields of a request that have a text below them, as sources have it."""
    (source,) = ast.parse(inspect.getsource(request)).body
    assert isinstance(source, ast.ClassDef)
    found = {}
    for field, below in pairwise(source.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def _option(
    owner: type[msgspec.Struct], field: Any, base: Any, about: dict[str, Any], extra: dict[str, Any]
) -> Option:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    is_argument = default is msgspec.NODEFAULT or "argument" in extra
    name = extra.get("option", field.name).replace("_", "-")
    written = name.upper() if is_argument else f"--{'no-' * (default is True)}{name}"
    origin = get_origin(base)
    item = get_args(base)[0] if origin is tuple else base
    kind = None if base is bool else kind_of(item, about, extra)
    text = about["description"]
    if kind is not None and default not in (msgspec.NODEFAULT, None, "", (), {}):
        shown = default if isinstance(default, tuple) else (default,)
        text = f"{text} [default: {' '.join(map(kind.shown, shown))}]"
    repeats = origin in (tuple, dict)
    return Option(owner, field.name, written, kind, repeats, is_argument, default, text)


def _made(request: type[msgspec.Struct], given: list[tuple[Option, Any]]) -> msgspec.Struct:
    values: dict[type, dict[str, Any]] = {}
    for option, value in given:
        if is_given(value):
            values.setdefault(option.owner, {})[option.field] = option.value(value)
    parts = {
        field.name: field.type(**values.get(field.type, {}))
        for field in msgspec.structs.fields(request)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    }
    return request(**parts, **values.get(request, {}))


def is_given(value: Any) -> bool:
    """Return whether the value that Typer passes means that the option is on the command line."""
    return value is not None and value is not False and value != []


def request_of(function: Command) -> type[msgspec.Struct]:
    """Return the type of a command's request, which is its one parameter."""
    hints = get_type_hints(function)
    hints.pop("return", None)
    request: type[msgspec.Struct]
    (request,) = hints.values()
    return request


def parts(hint: Any) -> tuple[Any, list[msgspec.Meta]]:
    """Return a type hint without None and `Meta`, and its `Meta` objects, the innermost first."""
    if get_origin(hint) is Annotated:
        base, metas = parts(hint.__origin__)
        return base, [*metas, *hint.__metadata__]
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
        return parts(hint)
    return hint, []
