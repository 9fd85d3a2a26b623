"""Makes `text_tables.json` out of the installed pylance: character classes, lower-casing, folding and stop words.

    python tools/make_text_tables.py

pylance has no interface that names them. It is asked by indexing: which terms an index has shows what became of its
words. Words that may be stop words are taken from pylance's own library, in which all strings of its stop lists are,
though not where one ends and the next begins.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from pennon.format.store import Location, open_store
from pennon.index.inverted.analysis.tables import LANGUAGES, WHITESPACE
from pennon.index.inverted.files import PartitionFiles, read_metadata

TABLES = Path(__file__).parent.parent / "src/pennon/index/inverted/analysis/text_tables.json"
CODE_POINTS = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
# Where stop lists are in the library: words that follow one another in the English one, and the bytes around them.
LANDMARK, AROUND = b"youyou'dyou'll", 1 << 15
LONGEST_WORD = 24
# Constants of these sizes are kept apart from other strings.
ALIGNED = (4, 8, 16, 32)
PLAIN = {"lower_case": False, "stem": False, "remove_stop_words": False, "ascii_folding": False}


def main() -> None:
    """Write the tables."""
    TABLES.write_text(json.dumps(make_tables(), ensure_ascii=True, separators=(",", ":")) + "\n", "utf-8")


def make_tables() -> dict[str, Any]:
    """The tables of the installed pylance."""
    return {
        "alphanumeric": alphanumeric(),
        "lower": translation(lower_case=True),
        "folding": translation(ascii_folding=True),
        "stop_words": stop_words([*candidates(), *known_words()]),
    }


def alphanumeric() -> list[list[int]]:
    """First and last of each run of code points that words may have."""
    flags = np.zeros(0x110001, dtype=np.int8)
    flags[kept_in_words(CODE_POINTS, "simple")] = 1
    edges = np.diff(np.concatenate([[0], flags]))
    firsts, lasts = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return np.stack([firsts, lasts], axis=1).tolist()


def whitespace() -> str:
    """The characters at which the whitespace tokenizer splits."""
    return "".join(map(chr, sorted(set(CODE_POINTS) - set(kept_in_words(CODE_POINTS, "whitespace")))))


def kept_in_words(codes: Sequence[int], tokenizer: str) -> list[int]:
    """Those of some code points at which a tokenizer does not split."""
    kept = terms_of((f"a{chr(code)}b" for code in codes), base_tokenizer=tokenizer)
    return [code for code in codes if f"a{chr(code)}b" in kept]


def translation(codes: Sequence[int] = CODE_POINTS, **options: bool) -> dict[str, str]:
    """What each character becomes that does not stay as it is."""
    words = (f"{code:x}={chr(code)}" for code in codes if chr(code) not in WHITESPACE)
    pairs = [term.split("=", 1) for term in terms_of(words, base_tokenizer="whitespace", **options)]
    changed = {int(code, 16): became for code, became in pairs if became != chr(int(code, 16))}
    return {chr(code): became for code, became in sorted(changed.items())}


def stop_words(words: Iterable[str]) -> dict[str, list[str]]:
    """Which of the words pylance leaves out, for each language."""
    asked, found = sorted(set(words)), dict[str, list[str]]()
    for language in LANGUAGES:
        kept = terms_of(asked, base_tokenizer="whitespace", language=language, remove_stop_words=True)
        found[language] = [word for word in asked if word not in kept]
    return found


def candidates() -> Iterator[str]:
    """Everything in pylance's library that may be a stop word."""
    spec = find_spec("lance.lance")
    assert spec is not None
    assert spec.origin is not None
    data = np.fromfile(spec.origin, dtype=np.uint8)
    at = data.tobytes().find(LANDMARK)
    assert at >= 0, "the stop lists were not found"
    around = data[at - AROUND : at + AROUND].tobytes().decode("utf-8", "ignore")
    for run in re.findall(r"[^\x00-\x20]+", around):
        for start in range(len(run)):
            yield from (run[start:stop] for stop in range(start + 1, min(start + LONGEST_WORD, len(run)) + 1))
    letters = ((data >= ord("a")) & (data <= ord("z"))) | (data >= 0x80) | (data == ord("'")) | (data == ord("-"))
    for size in ALIGNED:
        whole = len(data) // size * size
        chosen = data[:whole].reshape(-1, size)[letters[:whole].reshape(-1, size).all(axis=1)]
        for item in np.unique(chosen.copy().view(f"S{size}").ravel()).tolist():
            word = item.decode("utf-8", "ignore")
            if word.encode() == item and word.isprintable() and " " not in word:
                yield word
    yield from (chr(first) + second for first in range(97, 123) for second in ["", *map(chr, range(97, 123))])


def known_words() -> Iterable[str]:
    """The stop words that are shipped now."""
    if not TABLES.exists():
        return []
    return [word for words in json.loads(TABLES.read_text("utf-8"))["stop_words"].values() for word in words]


def terms_of(words: Iterable[str], **options: Any) -> set[str]:
    """All terms of an index that pylance builds over some words."""
    known = list(words)
    texts = [" ".join(known[start : start + 1000]) for start in range(0, len(known), 1000)]
    with tempfile.TemporaryDirectory() as scratch:
        uri = f"{scratch}/table"
        dataset = lance.write_dataset(pa.table({"t": texts}), uri)
        dataset.create_scalar_index("t", "INVERTED", max_token_length=None, **{**PLAIN, **options})
        (directory,) = (Path(uri) / "_indices").iterdir()
        store, place = open_store(Location.of(uri)), f"_indices/{directory.name}"
        found: set[str] = set()
        for number in read_metadata(store, place, {}).partitions:
            dictionary, total = PartitionFiles(store, place, number, {}).read_dictionary()
            found |= {term.decode() for term in dictionary.list_all(total)[0].strings().to_pylist()}
        return found


if __name__ == "__main__":
    main()
