"""A listener that records the stages of a job."""

from __future__ import annotations

Event = tuple[str, str, int]


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.rows: dict[str, int | None] = {}

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        self.events.append(("started", name, total_tasks))
        self.rows[name] = total_rows

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        self.events.append(("advanced", name, done_tasks))

    def stage_finished(self, name: str) -> None:
        self.events.append(("finished", name, 0))
