"""Kinds of index that pylance builds and Pennon does not read: what they are called, and what the ids in their files
are. Tables with them are kept up without them; what they cover stays covered."""

from __future__ import annotations

from dataclasses import dataclass

from pennon.format.index_metadata import IndexSegment


@dataclass(frozen=True)
class ForeignKind:
    """A kind by the end of its type URL, in lower case."""

    name: str
    type_name: str
    # Index versions whose files hold stable row ids, where the table has them. Compactions leave those alone; pylance
    # takes the coverage of all others away.
    by_row_id: frozenset[int] = frozenset()
    # Whether pylance maps the addresses in its files through the Fragment Reuse Index. Where it does not, a recorded
    # compaction makes the index find nothing.
    follows_reuse: bool = True


FOREIGN = (
    ForeignKind("FM", "lance.index.pb.fmindexdetails", follows_reuse=False),
    ForeignKind("MINHASHLSH", "lance.index.pb.minhashlshindexdetails", frozenset({0})),
    ForeignKind("JSON", "lance.index.pb.jsonindexdetails"),
)


def foreign_kind(segment: IndexSegment) -> ForeignKind | None:
    """The kind of a segment that Pennon does not read, as far as it is known."""
    return next((kind for kind in FOREIGN if kind.type_name == segment.type_name), None)
