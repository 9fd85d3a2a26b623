"""The parts that plans of every kind show: the same fields in JSON, and the same lines in print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.jobs.shared.placement import place_of
from pennon.wording import human_bytes, in_lines, plural

if TYPE_CHECKING:
    from pennon.jobs.kinds import BuildPlan, MergePlan

# Lines are aligned behind their titles.
TITLE_WIDTH = 10


def build_fields(plan: BuildPlan, type_: str, column: str, **own: object) -> dict[str, object]:
    """The fields of a build; `own` are those that only some kinds have."""
    return {
        "table": plan.pin.location.shown,
        "version": plan.pin.version,
        "name": plan.name,
        "type": type_,
        "column": column,
        "rows": plan.rows,
        "fragments": len(plan.fragments),
        "tasks": plan.tasks,
        **own,
        "task_memory_bytes": plan.task_memory_bytes,
        "index_bytes": plan.index_bytes,
    }


def build_text(plan: BuildPlan, heading: str, tasks: str, *own: str, rows: str = "", files: str = "") -> str:
    """A build in lines. `tasks` are counted in words; `own` are lines that only some kinds have, before the last;
    `rows` and `files` follow what is in the lines of that name."""
    lines = [
        heading,
        line("table", f"{plan.pin.location.shown}, version {plan.pin.version}"),
        line("rows", f"{plan.rows:,} in {plural(len(plan.fragments), 'fragment')}{rows}"),
        line("work", f"{tasks}, about {human_bytes(plan.task_memory_bytes)} a task{place_of(plan)}"),
        *own,
        line("files", f"about {human_bytes(plan.index_bytes)}{files}"),
    ]
    return in_lines(lines)


def line(title: str, text: str) -> str:
    """A line of a printed plan."""
    return f"{title:<{TITLE_WIDTH}}{text}"


def merge_fields(plan: MergePlan, sources: int, **own: object) -> dict[str, object]:
    """The fields of a merge; `own` are those that only some kinds have."""
    return {
        "name": plan.name,
        "rows": plan.rows,
        "sources": sources,
        "tasks": plan.tasks,
        **own,
        "task_memory_bytes": plan.task_memory_bytes,
        "index_bytes": plan.index_bytes,
        "estimate": plan.is_estimate,
    }


def merge_text(plan: MergePlan, work: str) -> str:
    """A merge in a line that begins with its work."""
    about = "about " if plan.is_estimate else ""
    memory, size = human_bytes(plan.task_memory_bytes), human_bytes(plan.index_bytes)
    return f"{about}{work}, about {memory} a task, files of about {size}"
