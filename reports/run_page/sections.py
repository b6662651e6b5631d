"""The sections of the page of a run, in the order of the page.

A section is an entry here, a function from the run folder to its data, and a template that draws
the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reports.evidence import citations, server_logs
from reports.evidence.model import RunFolder
from reports.faults import lanes
from reports.log import steps
from reports.messages import diagram
from reports.run_page import environment, findings, head, reproduction, time_view


@dataclass(frozen=True)
class Section:
    """A section of the page: the id of its element, its title, its template and its data.

    The template is a path inside `reports/templates/`, or an absolute one. It sees `data`, `folder`
    and the names that `page.render` gives. If `data` returns None, the page has no such section."""

    id: str
    title: str
    template: str
    data: Callable[[RunFolder], object | None]
    long: bool = False
    """Folded on the page of a failure, whose first screen and story say what matters."""


SECTIONS: list[Section] = [
    Section("story", "How it happened", "run_page/story.html.j2", citations.of_story),
    Section(
        "servers", "What the servers printed", "run_page/servers.html.j2", server_logs.server_logs
    ),
    Section(
        "reproduction",
        "Minimal reproduction",
        "run_page/reproduction.html.j2",
        reproduction.reproduction,
        long=True,
    ),
    Section("messages", "Messages", "run_page/messages.html.j2", diagram.diagram, long=True),
    Section("log", "Log", "run_page/log.html.j2", steps.log, long=True),
    Section("properties", "Properties", "run_page/properties.html.j2", head.properties, long=True),
    Section("findings", "Findings", "run_page/findings.html.j2", findings.findings, long=True),
    Section("time", "Time", "run_page/time.html.j2", time_view.views, long=True),
    Section("faults", "Faults", "run_page/faults.html.j2", lanes.sentences, long=True),
    # Last, for it says what the others left out.
    Section(
        "environment",
        "Environment and files",
        "run_page/environment.html.j2",
        environment.facts,
        long=True,
    ),
]
