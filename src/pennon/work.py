"""The work of a verb: the name that its Spark jobs have, and a count of what was read and sent for it.

A verb opens a scope with its name, a step of it a scope within. The engine adds what tasks report to every open scope.
What a process reads is counted by meters, which the room that reads registers; the engine takes the difference around a
task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields

from pennon.display import Displayed
from pennon.wording import human_bytes, in_line, plural

# Of a job's name on Spark's pages, which show one line.
LONGEST_NAME = 200


@dataclass(frozen=True)
class Work(Displayed):
    """What tasks and the calling process read from storage, and what tasks sent through Spark's exchange, for one call.

    `rows_read` counts table rows that tasks read to build or compare, once for each time. Bytes and reads are those of
    Lance files, index files among them. A task that Spark ran again counts once, as its last attempt.
    """

    tasks: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    reads: int = 0
    shuffle_bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def to_dict(self) -> dict[str, int]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        read = f"{plural(self.rows_read, 'row')} and {human_bytes(self.bytes_read)} read in {self.reads:,} reads"
        return f"{plural(self.tasks, 'task')}, {read}, {human_bytes(self.shuffle_bytes)} exchanged"


NO_WORK = Work()


class Scope:
    """Work in progress."""

    def __init__(self, name: str, outer: Scope | None) -> None:
        self._name, self._outer = name, outer
        self._before, self._counted = _readings(), Work()

    @property
    def name(self) -> str:
        """With the names of the scopes around it."""
        return f"{self._outer.name} > {self._name}" if self._outer else self._name

    @property
    def work(self) -> Work:
        """Of tasks that have ended, and of this process since the scope was opened."""
        return self._counted + _since(self._before)

    def add(self, work: Work) -> None:
        self._counted += work
        if self._outer:
            self._outer.add(work)


_scope: ContextVar[Scope | None] = ContextVar("pennon_scope", default=None)
_meters: dict[str, Callable[[], int]] = {}


@contextmanager
def working(name: str) -> Generator[Scope]:
    """Jobs within are named so, and count."""
    scope = Scope(in_line(name), _scope.get())
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)


def job_name(stage: str) -> str:
    """The name of a job on Spark's pages: `pennon create_index user_id BTREE: build`."""
    scope = _scope.get()
    return f"pennon {scope.name}: {stage}"[:LONGEST_NAME] if scope else f"pennon: {stage}"


def count_work(work: Work) -> None:
    """Add work of tasks to the open scopes."""
    scope = _scope.get()
    if scope:
        scope.add(work)


def register_meter(field: str, read: Callable[[], int]) -> None:
    """Count a field of `Work` by a number that grows with what this process does."""
    _meters[field] = read


@contextmanager
def metered() -> Generator[Callable[[], Work]]:
    """Measures what this process reads within; in a worker that is what its one task reads."""
    before = _readings()
    yield lambda: _since(before)


def _readings() -> dict[str, int]:
    return {field: read() for field, read in _meters.items()}


def _since(before: dict[str, int]) -> Work:
    # A meter may be registered in between, by an import; all it has counted was counted since.
    return Work(**{field: now - before.get(field, 0) for field, now in _readings().items()})
