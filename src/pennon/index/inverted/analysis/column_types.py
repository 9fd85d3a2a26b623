"""Which columns hold documents. Every query imports this, so it imports no kernels."""

from __future__ import annotations

import pyarrow as pa

from pennon.index.inverted.analysis.params import JSON, TEXT

TEXTS = (pa.string(), pa.large_string(), pa.string_view())


def supports_type(type_: pa.DataType) -> bool:
    """Whether documents can be read from a column of the type."""
    return _is_json(type_) or supports_text(type_)


def supports_text(type_: pa.DataType) -> bool:
    """Whether a column of the type has texts."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return type_.value_type in TEXTS
    return type_ in TEXTS


def document_kind(type_: pa.DataType) -> str:
    """How pylance calls the documents of a column of a supported type."""
    return JSON if _is_json(type_) else TEXT


def _is_json(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.JsonType)
