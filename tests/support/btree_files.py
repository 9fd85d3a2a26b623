"""B-trees as earlier releases of Lance wrote them."""

from __future__ import annotations

import lance
import pyarrow as pa


def write_version_zero_tree(uri: str, column: str) -> None:
    """A plain tree of stable row ids, written by hand as releases before 14 did."""
    from datetime import UTC, datetime
    from uuid import uuid4

    from lance.dataset import Index
    from lance.file import LanceFileWriter

    dataset = lance.dataset(uri)
    rows = dataset.scanner(columns=[column], with_row_id=True).to_table()
    rows = rows.sort_by([(column, "ascending")])
    nulls = rows.filter(pa.compute.field(column).is_null())
    rows = pa.concat_tables([nulls, rows.filter(~pa.compute.field(column).is_null())]).combine_chunks()
    values, ids = rows[column].combine_chunks(), rows["_rowid"].combine_chunks()
    uuid, size = str(uuid4()), 64
    pages = range(0, len(values), size)
    schema = pa.schema([pa.field("values", values.type), pa.field("ids", pa.uint64(), nullable=False)])
    with LanceFileWriter(f"{uri}/_indices/{uuid}/page_data.lance", schema) as writer:
        writer.write_batch(pa.record_batch([values, ids], schema=schema))
    lookup = pa.schema(
        [
            pa.field("min", values.type),
            pa.field("max", values.type),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("page_idx", pa.uint32(), nullable=False),
        ]
    )
    columns = [
        values.take(pa.array(list(pages))),
        values.take(pa.array([min(p + size, len(values)) - 1 for p in pages])),
        pa.array([values.slice(p, size).null_count for p in pages], pa.uint32()),
        pa.array(range(len(pages)), pa.uint32()),
    ]
    with LanceFileWriter(f"{uri}/_indices/{uuid}/page_lookup.lance", lookup) as writer:
        writer.write_batch(pa.record_batch(columns, schema=lookup))
        writer.add_schema_metadata("batch_size", str(size))
    field = next(f.id() for f in dataset.lance_schema.fields() if f.name() == column)
    index = Index(
        uuid=uuid,
        name=f"{column}_idx",
        fields=[field],
        dataset_version=dataset.version,
        fragment_ids={f.fragment_id for f in dataset.get_fragments()},
        index_version=0,
        created_at=datetime.now(UTC),
        index_details=("/lance.table.BTreeIndexDetails", b""),
    )
    lance.LanceDataset.commit(uri, lance.LanceOperation.CreateIndex([index], []), read_version=dataset.version)
