"""What the manifest records of a vector index, as far as it is read without the modules that search or build one:
filters on a table with such an index import no others."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from pennon.format.pb import lance_pb2 as pb

INDEX_FILE = "index.idx"
AUXILIARY_FILE = "auxiliary.idx"

TYPE_URL = "/lance.index.pb.VectorIndexDetails"
# The part after the last slash of a type URL, in lower case. The second is pylance's older, always empty form.
TYPE_NAMES = frozenset({"lance.index.pb.vectorindexdetails", "lance.table.vectorindexdetails"})

OLDER_LAYOUT = (
    f"its files have the older layout of vector indices, without {AUXILIARY_FILE}, which Pennon does not support"
)

_Message = pb.VectorIndexDetails
KNOWN_METRICS = frozenset({_Message.L2, _Message.COSINE, _Message.DOT, _Message.HAMMING})


def unknown_metric(details: bytes) -> str | None:
    """The metric in the details, if Pennon does not support it."""
    try:
        code = _Message.FromString(details).metric
    except DecodeError:
        return None  # reported when they are read
    if code in KNOWN_METRICS:
        return None
    return _Message.Metric.Name(code).lower() if code in _Message.Metric.values() else f"number {code}"


def has_graph(details: bytes) -> bool:
    """Whether the details are those of an HNSW index, for any metric."""
    try:
        return _Message.FromString(details).HasField("hnsw")
    except DecodeError:
        return False
