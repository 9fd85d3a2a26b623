"""A segment of an n-gram index for the report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pennon.format.addresses import read_address_bitmap
from pennon.index.description import MAX_RANKED, Chart, Description, ranking
from pennon.index.ngram.files import PostingsFile
from pennon.index.ngram.folding import NULL_TOKEN

PARAMETERS = (("letters per token", "3"),)
# The lists of a larger file are not read for a report.
MEASURED_BYTES = 8 << 20
DIGITS = " 0123456789abcdefghijklmnopqrstuvwxyz"


def describe_tokens(tokens: npt.NDArray[np.uint32], file: PostingsFile, size_bytes: int | None) -> Description:
    """How many tokens there are, and those with the longest posting lists."""
    measures = {"tokens": len(tokens)}
    if not len(tokens):
        return Description(PARAMETERS, measures, Chart("Tokens", "Tokens", "There are none: no text is long enough."))
    if size_bytes is None or size_bytes > MEASURED_BYTES:
        chart = Chart("Tokens", "Tokens", "The lengths of posting lists are not shown: the file is large.")
        return Description(PARAMETERS, measures, chart)
    sizes = np.array([len(content) for some in file.lists() for content in some], dtype=np.int64)
    rows = np.sort(np.argsort(sizes, kind="stable")[::-1][:MAX_RANKED]).tolist()
    counts = [len(read_address_bitmap(content, file.where)) for content in file.read_lists(rows)]
    named = [(token_name(int(tokens[row])), count) for row, count in zip(rows, counts, strict=True)]
    # They are the largest in bytes, which is not quite the order of their rows.
    chart = Chart("Largest posting lists", "Tokens with large posting lists", "", ranking(named, "row"), ranked=True)
    return Description(PARAMETERS, measures, chart)


def token_name(token: int) -> str:
    """The letters and digits of a token, or its number where they are not unique."""
    if token == NULL_TOKEN:
        return "NULL"
    codes = token // 37**2, token // 37 % 37, token % 37
    if codes[0] >= 37 or 0 in codes:
        return f"token {token}"
    return "".join(DIGITS[code] for code in codes)
