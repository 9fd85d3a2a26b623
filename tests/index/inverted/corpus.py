"""Tables of text, the indices that pylance and Pennon build on them, and the rows that pylance finds."""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.dataset import Index, IndexFile

from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location, open_store
from pennon.index.cache import ByteCache
from pennon.index.inverted.analysis.params import TYPE_URL, TextParams
from pennon.index.inverted.build import PartitionBuilder
from pennon.index.inverted.files import SegmentMetadata, write_metadata
from pennon.index.inverted.search.leaves import TextIndex
from pennon.index.inverted.segment import InvertedSegment

COLUMN, NAME = "text", "text_idx"
_ODD = ["running", "geologist", "Café", "naïve", "ÜBER", "the", "because", "it", "東京", "Ⅷ", "x" * 39, "y" * 40]
_ODD += ["don't", "éé" * 11, "ΣΑΣ", "İstanbul", "a_b", "3.14", "ﬁne"]


def vocabulary(seed: int = 1, words: int = 1500) -> list[str]:
    """Made-up words and some that analysis treats in its own way, in an order that is their frequency."""
    draw = random.Random(seed)
    found = {"".join(draw.choice("aeiourstlnmdcpgb") for _ in range(draw.randint(2, 8))) for _ in range(words)}
    mixed = sorted(found) + _ODD
    draw.shuffle(mixed)
    return mixed


def documents(count: int, seed: int = 1, words: int = 1500) -> list[str | None]:
    """Texts of 0 to 200 words with frequencies like those of languages; some are NULL."""
    draw, known = random.Random(seed), vocabulary(seed, words)
    weights = [1 / (place + 1) for place in range(len(known))]
    made: list[str | None] = []
    for number in range(count):
        length, between = draw.choice([0, 1, 3, 8, 20, 60, 200]), draw.choice([" ", ", ", "-", " _ "])
        made.append(None if number % 97 == 5 else between.join(draw.choices(known, weights, k=length)))
    return made


def write_table(path: Path, column: Any, fragments: int = 3, **options: Any) -> str:
    array = column if isinstance(column, pa.Array) else pa.array(column, pa.string())
    table = pa.table({"id": pa.array(np.arange(len(array))), COLUMN: array})
    lance.write_dataset(table, str(path), max_rows_per_file=max(1, -(-len(array) // fragments)), **options)
    return str(path)


def pylance_index(uri: str, **options: Any) -> IndexSegment:
    lance.dataset(uri).create_scalar_index(COLUMN, "INVERTED", name=NAME, **options)
    return segments(uri)[-1]


def pylance_options(params: TextParams) -> dict[str, Any]:
    options = asdict(params)
    del options["lance_tokenizer"]  # follows from the column
    stop_words = options["custom_stop_words"]
    return {**options, "custom_stop_words": None if stop_words is None else list(stop_words)}


def pennon_index(
    uri: str, params: TextParams, partitions: int = 1, fragments: Collection[int] | None = None
) -> IndexSegment:
    """Build with Pennon and commit beside what is there: `partitions` parts of about equal numbers of rows."""
    dataset, store, name = lance.dataset(uri), open_store(Location.of(uri)), str(uuid.uuid4())
    chosen = [f for f in dataset.get_fragments() if fragments is None or f.fragment_id in fragments]
    table = dataset.scanner(columns=[COLUMN], with_row_id=True, fragments=chosen).to_table()
    files, numbers = [], []
    step = max(1, -(-len(table) // partitions))
    for number in range(partitions):
        builder = PartitionBuilder(params)
        for batch in table.slice(number * step, step).to_batches(max_chunksize=700):
            builder.add(batch.column(COLUMN), batch.column("_rowid").to_numpy())
        written = builder.write(store, f"_indices/{name}", number)
        files += written
        numbers += [number] if written else []
    files.append(write_metadata(store, f"_indices/{name}", SegmentMetadata(params, tuple(numbers))))
    commit(uri, name, params, files, [f.fragment_id for f in chosen])
    return segments(uri)[-1]


def commit(uri: str, name: str, params: TextParams, files: Sequence[Any], fragments: Sequence[int]) -> None:
    dataset = lance.dataset(uri)
    index = Index(
        uuid=name,
        name=NAME,
        fields=[dataset.lance_schema.field(COLUMN).id()],
        dataset_version=dataset.version,
        fragment_ids=set(fragments),
        index_version=2,
        files=[IndexFile(file.path, file.size_bytes) for file in files],
        index_details=(TYPE_URL, params.to_details()),
    )
    lance.LanceDataset.commit(uri, lance.LanceOperation.CreateIndex([index], []), read_version=dataset.version)


def segments(uri: str) -> list[IndexSegment]:
    return [s for s in Snapshot.open(Location.of(uri)).manifest.segments if s.name == NAME]


def open_segment(uri: str, segment: IndexSegment, cache: ByteCache | None = None) -> InvertedSegment:
    return InvertedSegment(open_store(Location.of(uri)), segment, cache or ByteCache())


def open_index(uri: str) -> TextIndex:
    return TextIndex([open_segment(uri, segment) for segment in segments(uri)])


def pylance_search(
    table: str | lance.LanceDataset, query: Any, limit: int | None = None, **options: Any
) -> dict[int, float]:
    """Row ids and scores, the best first."""
    dataset = lance.dataset(table) if isinstance(table, str) else table
    scanner = dataset.scanner(columns=["_score"], full_text_query=query, limit=limit, with_row_id=True, **options)
    found = scanner.to_table()
    return dict(zip(found["_rowid"].to_pylist(), found["_score"].to_pylist(), strict=True))
