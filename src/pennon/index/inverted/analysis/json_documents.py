"""Documents of JSON columns. A term is path, type and value: `a.city,str,francisco`, `n,number,30`, `z,null,null`.

Strings become the terms of their words; other values are terms as they are written. Keys come in the order in which
Lance stores them, which is sorted. A position is the number of terms before it: what was left out takes none.

Values and paths are numbered apart, and then the pairs of both, so that filters see each distinct word once.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import UnsupportedColumn
from pennon.index.arrays import Flags, Int32s, Int64s
from pennon.index.inverted.analysis import json_kernels as kernels
from pennon.index.inverted.analysis.filters import Filters
from pennon.index.inverted.analysis.kernels import UNIQUES
from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.token_table import TokenTable
from pennon.index.inverted.analysis.tokenizers import Texts, Tokenizer, Tokens, texts_of

_WHOLE = TextParams(base_tokenizer="raw")
_STRING = b",str,"
_PAIR = 8
_PROBLEMS = {
    kernels.INVALID: "is not JSON as Lance writes it",
    kernels.TOO_DEEP: f"is nested deeper than {kernels.DEEPEST} levels, which pylance does not index either",
}
_LARGEST_POWER = 308


class JsonTokenizer:
    """Numbers the pairs of a path and a token of one document after another, like a `Tokenizer` its tokens."""

    def __init__(self, params: TextParams) -> None:
        self._words, self._others, self._pairs = Tokenizer(params), Tokenizer(_WHOLE), Tokenizer(_WHOLE)
        self._paths, self._state = TokenTable(), np.zeros(4, dtype=np.int64)
        self._of_strings: Flags = np.empty(0, dtype=np.bool_)  # of each path with its type

    @property
    def uniques(self) -> int:
        """Distinct pairs so far."""
        return self._pairs.uniques

    @property
    def nbytes(self) -> int:
        """Bytes that the tables take."""
        return sum(table.nbytes for table in (self._words, self._others, self._pairs, self._paths))

    @property
    def text_bytes(self) -> int:
        """Bytes of the terms of all pairs: a path, a token and a few letters between them; on the average here."""
        mean = (self._words.text_bytes + self._others.text_bytes) // max(1, self._words.uniques + self._others.uniques)
        paths = self._paths.text_bytes(len(self._of_strings)) // max(1, len(self._of_strings))
        return self.uniques * (mean + paths + 8)

    def encode_column(self, column: pa.Array) -> Tokens:
        """The pairs of the rows of a column. `UnsupportedColumn` where a value cannot be indexed."""
        texts = texts_of(column.storage if isinstance(column, pa.ExtensionArray) else column)
        values, paths, documents = self._flatten(texts)
        strings = self._of_strings[paths]
        words, others = self._words.encode(_elements(values, strings)), self._others.encode(_elements(values, ~strings))
        counts = np.ones(len(values), dtype=np.int64)
        counts[strings] = np.diff(words.documents)
        of_strings = np.repeat(strings, counts)
        numbers = np.empty(len(of_strings), dtype=np.int64)
        numbers[of_strings], numbers[~of_strings] = words.numbers, others.numbers
        pairs = np.repeat(paths.astype(np.int64), counts) << 32 | numbers
        starts = np.arange(0, _PAIR * len(pairs), _PAIR)
        found = self._pairs.encode(Texts(pairs.view(np.uint8), starts, starts + _PAIR, np.arange(len(pairs) + 1)))
        tokens = np.concatenate([[0], np.cumsum(counts)])
        return Tokens(found.numbers, tokens[documents[texts.documents]])

    def terms(self, filters: Filters, first: int = 0) -> pa.Array:
        """The terms of the distinct pairs from a number on: a large string each, NULL where it is left out."""
        packed = self._pairs.strings(first)
        pairs = np.frombuffer(packed.buffers()[2], dtype=np.int64)
        paths, numbers = pairs >> 32, pairs & 0xFFFF_FFFF
        strings = self._of_strings[paths]
        # Only what the asked pairs have is filtered: they may be a few new ones among many.
        used, places = np.unique(numbers[strings], return_inverse=True)
        words = filters.apply(self._words.strings().take(pa.array(used))).take(pa.array(places))
        others = self._others.strings().take(pa.array(numbers[~strings]))
        order = np.empty(len(pairs), dtype=np.int64)
        order[strings] = np.arange(len(words))
        order[~strings] = len(words) + np.arange(len(others))
        values = pa.concat_arrays([words.cast(pa.large_binary()), _displayed(others)]).take(pa.array(order))
        named = self._paths.strings(int(self._state[UNIQUES])).take(pa.array(paths))
        joined = pc.binary_join_element_wise(named, values, pa.scalar(b"", pa.large_binary()))
        return joined.cast(pa.large_string())

    def _flatten(self, texts: Texts) -> tuple[Texts, Int32s, Int64s]:
        """All values as elements, the path of each, and the values before each document."""
        sizes = texts.stops - texts.starts
        most = len(texts.starts) + int(np.count_nonzero(_bytes(texts) == ord(",")))
        out = np.empty(int(sizes.sum()), dtype=np.uint8)
        path = np.empty(int(sizes.max(initial=0)) + 16, dtype=np.uint8)
        ends, paths = np.zeros(most + 1, dtype=np.int64), np.empty(most, dtype=np.int32)
        documents = np.zeros(len(texts.starts) + 1, dtype=np.int64)
        self._state[1:] = 0
        given = texts.data, texts.starts, texts.stops, path, out, ends, paths, documents[1:]
        while (outcome := kernels.flatten(*given, *self._paths.arrays, self._state)) == kernels.NO_ROOM:
            self._paths.make_room(int(self._state[UNIQUES]), len(path))
        if outcome != kernels.DONE:
            raise UnsupportedColumn(f"a value of the column {_PROBLEMS[int(outcome)]}", "Correct the row first")
        self._note_types()
        count = int(self._state[kernels.VALUES])
        values = Texts(out, ends[:count], ends[1 : count + 1], np.arange(count + 1))
        return values, paths[:count], documents

    def _note_types(self) -> None:
        known, paths = len(self._of_strings), int(self._state[UNIQUES])
        if paths > known:
            fresh = pc.ends_with(self._paths.strings(paths, known), _STRING).to_numpy(zero_copy_only=False)
            self._of_strings = np.concatenate([self._of_strings, fresh])


def displayed_number(text: str) -> str:
    """A number as pylance's terms have it, from how Lance writes it: read with the rounding errors of a quick parser,
    and written again."""
    if not ("." in text or "e" in text):
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    value = float(int("".join(map(str, digits))))
    while abs(exponent) > _LARGEST_POWER and value:
        if exponent > 0:
            return text
        value, exponent = value / 1e308, exponent + _LARGEST_POWER
    scale = float(f"1e{min(abs(exponent), _LARGEST_POWER)}")
    value = value * scale if exponent >= 0 else value / scale
    value = -value if sign else value
    return text if value == float(text) or not math.isfinite(value) else _shortest(value)


def _shortest(value: float) -> str:
    """The fewest digits that give a number, in the form of Lance: plain from 1e-5 to below 1e16."""
    sign, parts, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits, point = "".join(map(str, parts)), len(parts) + exponent
    if len(digits) <= point <= 16:
        shown = digits + "0" * exponent + ".0"
    elif 0 < point <= 16:
        shown = f"{digits[:point]}.{digits[point:]}"
    elif -5 < point <= 0:
        shown = "0." + "0" * -point + digits
    else:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        shown = f"{digits[0]}{rest}e{point - 1:+d}" if point > 0 else f"{digits[0]}{rest}e{point - 1}"
    return f"-{shown}" if sign else shown


def _displayed(others: pa.Array) -> pa.Array:
    """Numbers, true, false and null; the last three have no digit."""
    texts: list[str] = others.cast(pa.large_string()).to_pylist()
    shown = [displayed_number(text) if text[-1].isdigit() else text for text in texts]
    return pa.array(shown, pa.large_string()).cast(pa.large_binary())


def _elements(values: Texts, chosen: Flags) -> Texts:
    starts = values.starts[chosen]
    return Texts(values.data, starts, values.stops[chosen], np.arange(len(starts) + 1))


def _bytes(texts: Texts) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return texts.data[texts.starts[0] : texts.stops[-1]] if len(texts.starts) else texts.data[:0]
