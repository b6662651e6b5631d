"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Master = Annotated[str | None, typer.Option(help="A Spark cluster's URL [this machine].")]
Memory = Annotated[str, typer.Option("--driver-memory", help="Limit of Spark's heap, as 3g.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
