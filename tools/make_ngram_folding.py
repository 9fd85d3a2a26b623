"""Learn how pylance prepares texts for n-gram indices, from an index that the installed pylance builds.

    python tools/make_ngram_folding.py

writes `src/pennon/index/ngram/folding.json`. For every code point beyond ASCII an index over `0q<c>z1` has the tokens
of what the code point becomes; the shortest text that has those tokens, and no others, is taken. It is unique: the tool
stops where two texts would do.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import lance
import pyarrow as pa
from lance.file import LanceFileReader
from pyroaring import BitMap64

from pennon.index.ngram.folding import CODES, FOLDING_FILE, SEPARATOR, token

# W to Z have the codes of 0 to 3.
LETTERS = {code: character for character, code in reversed(CODES.items())}
LONGEST = 5
SURROGATES = range(0xD800, 0xE000)


def learn_folding(code_points: Iterable[int]) -> dict[int, str]:
    """Code point -> text of letters, digits and `SEPARATOR`, for those that become any letter or digit."""
    points = [point for point in code_points if point >= 0x80 and point not in SURROGATES]
    solved: dict[frozenset[int], str] = {}
    folding: dict[int, str] = {}
    for row, found in _tokens([f"0q{chr(point)}z1" for point in points]).items():
        tokens = frozenset(found)
        if tokens not in solved:
            solved[tokens] = _solution(tokens)
        folding[points[row]] = solved[tokens]
    return folding


def write_folding(folding: dict[int, str], path: Path) -> None:
    """Characters by what they become, one text a line."""
    characters: defaultdict[str, list[str]] = defaultdict(list)
    for point, text in sorted(folding.items()):
        characters[text].append(chr(point))
    lines = (f"{json.dumps(text, ensure_ascii=False)}: {json.dumps(''.join(those), ensure_ascii=False)}"
             for text, those in sorted(characters.items()))  # fmt: skip
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _tokens(texts: list[str]) -> dict[int, set[int]]:
    with tempfile.TemporaryDirectory() as directory:
        dataset = lance.write_dataset(pa.table({"s": texts}), directory, max_rows_per_file=1 << 30)
        dataset.create_scalar_index("s", "NGRAM")
        [file] = Path(directory).glob("_indices/*/*.lance")
        postings = LanceFileReader(str(file)).read_all().to_table()
    found: defaultdict[int, set[int]] = defaultdict(set)
    for number, bitmap in zip(postings["tokens"].to_pylist(), postings["posting_list"].to_pylist(), strict=True):
        for row in BitMap64.deserialize(bitmap):
            found[row].add(number)
    return found


def _solution(tokens: frozenset[int]) -> str:
    for length in range(LONGEST + 1):
        texts = sorted(_texts("0q", frozenset(), tokens, length))
        if len(texts) > 1:
            raise SystemExit(f"{texts} have the same tokens")
        if texts:
            return texts[0]
    raise SystemExit(f"no text of {LONGEST} characters has the tokens {sorted(tokens)}")


def _texts(text: str, used: frozenset[int], tokens: frozenset[int], length: int) -> Iterator[str]:
    """Texts of a length that continue `text` and have exactly the tokens, those of the frame included."""
    if not length:
        end = {made for made in (token(text[-2], text[-1], "z"), token(text[-1], "z", "1")) if made is not None}
        if end <= tokens and used | end == tokens:
            yield text[2:]
        return
    for character in (*LETTERS.values(), SEPARATOR):
        made = token(text[-2], text[-1], character)
        if made is None or made in tokens:
            further = used if made is None else used | {made}
            yield from _texts(text + character, further, tokens, length - 1)


if __name__ == "__main__":
    write_folding(learn_folding(range(0x110000)), Path(FOLDING_FILE))
