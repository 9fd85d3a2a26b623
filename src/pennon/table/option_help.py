"""The options of all index types in the help texts of `create_index` and `plan_index`.

`python -m tools.make_option_help` writes the text; a test compares it with the options.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = """\
Options by index type:
    ranges: Number of value ranges. Each range has its own page file. [BTREE: at least 1, default chosen from
        the number of rows, the cores and the task memory]
    rows_per_range: Rows per range, instead of ranges. [BTREE: at least 1, default follows from ranges]
    batch_size: Rows per page, the smallest unit that a lookup reads. [BTREE: 1 to 1,048,576, default 4096]
    rows_per_zone: Rows per zone, which are read together. Smaller zones are more selective, but there are
        more of them. [ZONEMAP: 1 to 4,294,967,295, default 8192]
    number_of_items: Rows per zone. Each zone has a filter and is read as a whole. [BLOOMFILTER: 1 to
        67,108,864, default 8192]
    probability: False positive rate for zones of distinct values, above 0 and below 1. [BLOOMFILTER: default
        0.00057]
    page_size: Boxes per page, the smallest unit that a search reads. [RTREE: 2 to 1,048,576, default 4096]
    base_tokenizer: How text is split into tokens: simple, at everything but letters and digits; whitespace,
        at spaces; raw, not at all; ngram, into all sequences of a few characters. [INVERTED: default simple]
    language: Language of the stemmer and the stop words. [INVERTED: Arabic, Danish, Dutch, English, Finnish,
        French, German, Greek, Hungarian, Italian, Norwegian, Portuguese, Romanian, Russian, Spanish, Swedish,
        Tamil or Turkish, default English]
    with_position: Whether to store the positions of words, which phrase queries need. [INVERTED: default
        False]
    max_token_length: Omit words of this many bytes or more. [INVERTED: at least 1, default 40]
    lower_case: Whether to ignore case. [INVERTED: default True]
    stem: Whether to reduce words to their stems. [INVERTED: default True, but False for the tokenizer ngram]
    remove_stop_words: Whether to omit very common words. [INVERTED: default True, but False for the tokenizer
        ngram]
    custom_stop_words: Stop words to use instead of those of the language. [INVERTED: default those of the
        language]
    ascii_folding: Whether to ignore accents. [INVERTED: default True]
    min_ngram_length: Minimum length of the sequences of the tokenizer ngram. [INVERTED: at least 1, default
        3]
    max_ngram_length: Maximum length of the sequences of the tokenizer ngram. [INVERTED: at least 1, default
        3]
    prefix_only: Whether the tokenizer ngram returns only sequences at the start of a text. [INVERTED: default
        False]
    metric: Distance metric: l2, cosine or dot, or hamming for vectors of uint8. [IVF_*: default l2, or
        hamming for uint8; with fragment_ids, the metric of the index that the segment joins]
    num_partitions: Number of IVF partitions. [IVF_*: 1 to 65,536, default the square root of the number of
        rows]
    target_partition_size: Rows per partition, to choose num_partitions. Ignored if num_partitions is given.
        [IVF_*: at least 1, default follows from num_partitions]
    sample_rate: Number of training vectors per partition for k-means. [IVF_*: at least 1, default 256]
    max_iters: Maximum number of k-means iterations. Training stops earlier if it has converged. [IVF_*: at
        least 1, default 50]
    seed: Seed of sampling and training. Equal seeds give equal indices. [IVF_*: at least 0, default 0]
    num_segments: Number of segments, each over some of the fragments, with the same centroids. Each is joined
        by a task of its own, and searches probe partitions in every segment. [IVF_*: at least 1, default one
        per 16 GiB of files, at most 32]
    ivf_centroids: Centroids to use instead of trained ones, [num_partitions, dimension] floats. [IVF_*:
        default trained]
    num_sub_vectors: Number of sub-vectors, each encoded as one codeword. Must divide the dimension, and be
        even with 4 bits. [IVF_PQ, IVF_HNSW_PQ: at least 1, default sub-vectors of 16 dimensions, or of 8, 4,
        2 or 1 if 16 does not divide the dimension]
    num_bits: Bits per code. [IVF_PQ, IVF_HNSW_PQ: 4 or 8, default 8; IVF_SQ, IVF_HNSW_SQ: 8; IVF_RQ: 1 to 9,
        default 5]
    pq_codebook: Codewords to use instead of trained ones, [num_sub_vectors, 2^num_bits, dimension /
        num_sub_vectors] floats. Needs ivf_centroids. [IVF_PQ, IVF_HNSW_PQ: default trained]
    m: Links per node of the graph; up to 2m on level 0. [IVF_HNSW_*: at least 4, default 20]
    ef_construction: Number of candidates from which the links of a node are chosen; at least m. [IVF_HNSW_*:
        at least 1, default 150]
    max_level: Maximum number of levels of the graph. [IVF_HNSW_*: at least 1, default 7]
"""


def documents_options(function: F) -> F:
    """The same function with the options of all index types in its docstring."""
    text = textwrap.indent(OPTIONS, " " * 8)
    function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{text}{' ' * 8}"
    return function
