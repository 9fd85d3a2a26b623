"""The parameters of an inverted index, as `metadata.lance` (JSON) and the manifest (protobuf) record them.

    InvertedIndexDetails
     1 base_tokenizer   2 language, in JSON's quotes   3 with_position        4 max_token_length, absent: none
     5 lower_case       6 stem                         7 remove_stop_words    8 ascii_folding
     9 min_ngram_length 10 max_ngram_length            11 prefix_only         12 block_size
    13 code_config      14 document_granularity        15 version of the posting format

The query side analyzes with the JSON alone: custom stop words and the kind of document are only there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from pennon.errors import DamagedFile, InvalidArgument
from pennon.format import protobuf_wire
from pennon.index.inverted.analysis.tables import LANGUAGES

TYPE_URL = "/lance.table.InvertedIndexDetails"
TOKENIZERS = ("simple", "whitespace", "raw", "ngram")
TEXT, JSON = "text", "json"
BLOCK_SIZE = 128
FORMAT_VERSION = 2

# What pylance records of the analyzers that are not Pennon's, at the values that mean "not used".
_OTHERS: dict[str, object] = {
    "block_size": BLOCK_SIZE,
    "split_identifiers": False,
    "split_on_numerics": False,
    "preserve_original": False,
    "index_operators": False,
}
_DETAIL_CODE_CONFIG, _DETAIL_GRANULARITY, _DETAIL_FORMAT = 13, 14, 15


@dataclass(frozen=True)
class TextParams:
    """How text becomes terms. Names and defaults are pylance's."""

    base_tokenizer: str = "simple"
    language: str = "English"
    with_position: bool = False
    max_token_length: int | None = 40
    lower_case: bool = True
    stem: bool = True
    remove_stop_words: bool = True
    custom_stop_words: tuple[str, ...] | None = None
    ascii_folding: bool = True
    min_ngram_length: int = 3
    max_ngram_length: int = 3
    prefix_only: bool = False
    lance_tokenizer: str = TEXT  # what a document is; follows from the type of the column

    def __post_init__(self) -> None:
        if self.base_tokenizer not in TOKENIZERS:
            raise InvalidArgument(
                f"tokenizer {self.base_tokenizer!r} is not among those Pennon reproduces exactly",
                f"Use one of {', '.join(TOKENIZERS)}, or build the index with pylance",
            )
        if self.lance_tokenizer not in (TEXT, JSON):
            raise InvalidArgument(f"documents of kind {self.lance_tokenizer!r} are not known to Pennon")
        if self.language not in LANGUAGES:
            raise InvalidArgument(f"unknown language {self.language!r}", f"Use one of {', '.join(LANGUAGES)}")
        if self.max_token_length is not None and self.max_token_length < 1:
            raise InvalidArgument(f"max_token_length is {self.max_token_length}", "Use a positive number or None")
        if not 1 <= self.min_ngram_length <= self.max_ngram_length:
            raise InvalidArgument(
                f"n-grams of {self.min_ngram_length} to {self.max_ngram_length} characters do not exist",
                "Use 1 <= min_ngram_length <= max_ngram_length",
            )

    def to_json(self) -> str:
        """The `params` of metadata.lance."""
        return json.dumps({**_OTHERS, **asdict(self)}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, where: str) -> TextParams:
        """`InvalidArgument` where the index was analyzed in a way Pennon cannot reproduce, `DamagedFile` where the text
        is none that pylance writes."""
        try:
            recorded: dict[str, Any] = json.loads(text)
            stop_words = recorded.get("custom_stop_words")
            known = {field.name: recorded[field.name] for field in fields(cls) if field.name in recorded}
            known["custom_stop_words"] = None if stop_words is None else tuple(str(word) for word in stop_words)
            _check_types(known)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise DamagedFile(f"the parameters of {where} cannot be read: {error}") from error
        for name, expected in _OTHERS.items():
            if recorded.get(name, expected) != expected:
                raise InvalidArgument(f"{where} has {name} {recorded[name]!r}, which Pennon does not reproduce")
        return cls(**known)

    def to_details(self) -> bytes:
        """The value of the manifest's `index_details`."""
        return b"".join(_written(number, value) for number, value in self._details())

    def _details(self) -> Iterator[tuple[int, str | int | bool | None]]:
        yield 1, self.base_tokenizer
        yield 2, json.dumps(self.language)
        yield 3, self.with_position
        yield 4, self.max_token_length
        yield 5, self.lower_case
        yield 6, self.stem
        yield 7, self.remove_stop_words
        yield 8, self.ascii_folding
        yield 9, self.min_ngram_length
        yield 10, self.max_ngram_length
        yield 11, self.prefix_only
        yield 12, BLOCK_SIZE
        yield _DETAIL_FORMAT, FORMAT_VERSION

    @classmethod
    def from_details(cls, value: bytes) -> TextParams:
        """What the manifest records; without custom stop words and the kind of
        document, which it never names. `InvalidArgument` and
        `DamagedFile` as for `from_json`."""
        try:
            found = dict(protobuf_wire.fields(value))
            text = {number: _text(found[number]) for number in (1, 2) if number in found}
            language = json.loads(text.get(2, '"English"'))
            number = {key: int(item) for key, item in found.items() if isinstance(item, int)}
        except (ValueError, TypeError) as error:
            raise DamagedFile(f"the details of an inverted index cannot be read: {error}") from error
        if found.get(_DETAIL_CODE_CONFIG) or number.get(_DETAIL_GRANULARITY):
            raise InvalidArgument("the index splits code or has a document per list element; Pennon does neither")
        if number.get(12, BLOCK_SIZE) != BLOCK_SIZE or number.get(_DETAIL_FORMAT, FORMAT_VERSION) == 1:
            raise InvalidArgument("the index has blocks or a format version that Pennon does not write")
        return cls(
            base_tokenizer=text.get(1, "simple"),
            language=str(language),
            with_position=bool(number.get(3)),
            max_token_length=number.get(4),
            lower_case=bool(number.get(5)),
            stem=bool(number.get(6)),
            remove_stop_words=bool(number.get(7)),
            ascii_folding=bool(number.get(8)),
            min_ngram_length=number.get(9, 3),
            max_ngram_length=number.get(10, 3),
            prefix_only=bool(number.get(11)),
        )


def _check_types(known: dict[str, Any]) -> None:
    for field in fields(TextParams):
        value = known.get(field.name)
        if value is None or field.name == "custom_stop_words":
            continue
        expected = type(field.default) if field.default is not None else int
        if type(value) is not expected:
            raise TypeError(f"{field.name} is {value!r}")


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise TypeError("a number where a text belongs")
    return value.decode("utf-8")


def _written(number: int, value: str | int | bool | None) -> bytes:
    """A protobuf field; absent values and false flags are not written."""
    if value is None or value is False:
        return b""
    if isinstance(value, str):
        content = value.encode()
        return _varint(number << 3 | 2) + _varint(len(content)) + content
    return _varint(number << 3) + _varint(int(value))


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])
