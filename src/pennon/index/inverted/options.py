"""The options of inverted indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pennon.index.inverted.analysis.params import TextParams
from pennon.index.inverted.analysis.tables import LANGUAGES
from pennon.index.option_text import documented
from pennon.index.options import IndexOptions, option

NGRAM = "ngram"


@documented
@dataclass(frozen=True, kw_only=True)
class Inverted(IndexOptions):
    """Options of an inverted index, for words in columns of text. Names and defaults are those of pylance."""

    index_type: ClassVar[str] = "INVERTED"

    base_tokenizer: str = option(
        "simple",
        "How text is split into tokens: simple, at everything but letters and digits; whitespace, at spaces; raw, not"
        " at all; ngram, into all sequences of a few characters.",
    )
    language: str = option("English", "Language of the stemmer and the stop words.", choices=LANGUAGES)
    with_position: bool = option(False, "Whether to store the positions of words, which phrase queries need.")
    max_token_length: int | None = option(40, "Omit words of this many bytes or more.", unset="no limit", at_least=1)
    lower_case: bool = option(True, "Whether to ignore case.")
    stem: bool | None = option(
        None, "Whether to reduce words to their stems.", unset="True, but False for the tokenizer ngram"
    )
    remove_stop_words: bool | None = option(
        None, "Whether to omit very common words.", unset="True, but False for the tokenizer ngram"
    )
    custom_stop_words: tuple[str, ...] | None = option(
        None, "Stop words to use instead of those of the language.", unset="those of the language"
    )
    ascii_folding: bool = option(True, "Whether to ignore accents.")
    min_ngram_length: int = option(3, "Minimum length of the sequences of the tokenizer ngram.", at_least=1)
    max_ngram_length: int = option(3, "Maximum length of the sequences of the tokenizer ngram.", at_least=1)
    prefix_only: bool = option(False, "Whether the tokenizer ngram returns only sequences at the start of a text.")

    def check(self) -> None:
        _ = self.params

    def overridden(self) -> Mapping[str, str]:
        if self.custom_stop_words is not None and not self.params.remove_stop_words:
            return {"custom_stop_words": "stop words are not left out"}
        return {}

    @property
    def params(self) -> TextParams:
        """What the files record of them."""
        words = self.base_tokenizer != NGRAM
        return TextParams(
            base_tokenizer=self.base_tokenizer,
            language=self.language,
            with_position=self.with_position,
            max_token_length=self.max_token_length,
            lower_case=self.lower_case,
            stem=words if self.stem is None else self.stem,
            remove_stop_words=words if self.remove_stop_words is None else self.remove_stop_words,
            custom_stop_words=None if self.custom_stop_words is None else tuple(self.custom_stop_words),
            ascii_folding=self.ascii_folding,
            min_ngram_length=self.min_ngram_length,
            max_ngram_length=self.max_ngram_length,
            prefix_only=self.prefix_only,
        )
