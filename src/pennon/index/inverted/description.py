"""A segment of an inverted index for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pennon.index.description import Chart, Description, ranking
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.files import PartitionFiles
from pennon.wording import percent

# Terms of each partition whose counts are summed up.
LARGEST = 64


def describe_partitions(params: TextParams, partitions: Sequence[PartitionFiles]) -> Description:
    """How many documents, terms and postings there are, and the terms of the longest posting lists."""
    documents = tokens = terms = postings = 0
    largest: Counter[str] = Counter()
    for files in partitions:
        statistics, sizes = files.read_docs().statistics, files.read_sizes()
        documents, tokens = documents + statistics.num_docs, tokens + statistics.total_tokens
        terms, postings = terms + len(sizes), postings + int(sizes.sum())
        largest.update(_largest(files))
    measures = {
        "partitions": len(partitions),
        "documents": documents,
        "tokens": tokens,
        "terms": terms,
        "postings": postings,
    }
    return Description(_parameters(params), measures, _chart(documents, largest))


def _parameters(params: TextParams) -> tuple[tuple[str, str], ...]:
    found = [("tokenizer", params.base_tokenizer), ("language", params.language)]
    flags = ("with_position", "lower_case", "stem", "remove_stop_words", "ascii_folding")
    found += [(name, "yes" if getattr(params, name) else "no") for name in flags]
    if params.base_tokenizer == "ngram":
        found.append(("n-grams", f"{params.min_ngram_length} to {params.max_ngram_length} characters"))
    if params.custom_stop_words is not None:
        found.append(("stop words", f"{len(params.custom_stop_words):,} of its own"))
    return tuple(found)


def _largest(files: PartitionFiles) -> dict[str, int]:
    """The terms in most documents of a partition."""
    sizes = files.read_sizes()
    dictionary, total = files.read_dictionary()
    terms, rows = dictionary.list_all(total)
    by_term = sizes[rows]
    chosen = np.argsort(by_term, kind="stable")[::-1][:LARGEST]
    names = terms.strings().take(chosen).to_pylist()
    return {name.decode("utf-8", "replace"): int(by_term[at]) for name, at in zip(names, chosen, strict=True)}


def _chart(documents: int, largest: Counter[str]) -> Chart:
    if not largest:
        return Chart("Posting lists", "Posting lists", "There are none: no row has a word to be indexed.")
    share = largest.most_common(1)[0][1] / max(documents, 1)
    return Chart(
        "Longest posting lists",
        "The terms in most documents, by how many",
        f"The most frequent term is in {percent(share)} of the documents.",
        ranking(largest.most_common(), "document"),
        ranked=True,
    )
