"""The ways in which a column changes in place: rows keep their addresses, their values are in a new file."""

from __future__ import annotations

import lance
import pyarrow as pa

WAYS = ("update", "merge", "replacement")


def change_in_place(uri: str, fragment: lance.LanceFragment, changed: pa.Table, way: str) -> None:
    """Commit new values of some rows of a fragment by one of `WAYS`. `changed` has `_rowid` and the column."""
    dataset = lance.dataset(uri)
    before = fragment.metadata
    metadata, fields = fragment.update_columns(changed)
    own_file = [file for file in before.files if file.fields == fields]
    own_id = next(f.id() for f in dataset.lance_schema.fields() if f.name() == changed.column_names[1])
    if own_id not in fields:
        # pylance names the elements of a list only, by which it does not find the indices on the list.
        operation = lance.LanceOperation.Update(updated_fragments=[metadata], fields_modified=[own_id, *fields])
    elif way == "merge":
        fragments = [metadata if f.fragment_id == before.id else f.metadata for f in dataset.get_fragments()]
        operation = lance.LanceOperation.Merge(fragments, dataset.lance_schema)
    elif way == "replacement" and own_file:
        # Lance replaces a file by one with the same columns only.
        [new_file] = [file for file in metadata.files if file.fields == fields]
        group = lance.LanceOperation.DataReplacementGroup(before.id, new_file)
        operation = lance.LanceOperation.DataReplacement([group])
    else:
        operation = lance.LanceOperation.Update(updated_fragments=[metadata], fields_modified=fields)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
