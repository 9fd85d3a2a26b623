"""JSON documents: their terms, positions and numbers are those of pylance."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.errors import InvalidArgument, UnsupportedColumn
from pennon.index.inverted.analysis.analyzer import analyze
from pennon.index.inverted.analysis.json_documents import JsonTokenizer, displayed_number
from pennon.index.inverted.analysis.params import TextParams
from tests.index.inverted.contents import partition_files, terms_and_lists, tokens_by_row
from tests.index.inverted.corpus import (
    COLUMN,
    NAME,
    pylance_index,
    pylance_search,
    segments,
    vocabulary,
    write_table,
)

pytestmark = pytest.mark.usefixtures("process_engine")

KEYS = ["a", "b", "Key", "x.y", "ü", "", "q,u", 'quo"te']
ODD = ['tab\tquote" back\\slash \u0000 \U0001f600 é\u2028', "the", "", "true", "1"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"base_tokenizer": "ngram"},
    {"base_tokenizer": "raw", "max_token_length": None},
    {"base_tokenizer": "whitespace", "stem": False, "remove_stop_words": False, "lower_case": False},
]


def json_documents(count: int, seed: int = 1) -> pa.Array:
    draw, words = random.Random(seed), vocabulary(1, 200)

    def value(depth: int) -> Any:
        kind = draw.random()
        if depth < 4 and kind < 0.3:
            return {draw.choice(KEYS): value(depth + 1) for _ in range(draw.randint(0, 4))}
        if depth < 4 and kind < 0.5:
            return [value(depth + 1) for _ in range(draw.randint(0, 4))]
        numbers = [draw.randint(-5, 5), draw.random() * 10 ** draw.randint(-30, 30), draw.getrandbits(64) - 2**63]
        return draw.choice([None, True, False, *numbers, " ".join(draw.choices(words, k=5)), draw.choice(ODD)])

    made = [None if n % 17 == 3 else json.dumps(value(0), ensure_ascii=n % 2 == 0) for n in range(count)]
    return pa.array(made, pa.json_())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_terms_and_positions_are_those_of_pylance(tmp_path: Path, options: dict[str, Any]) -> None:
    documents = json_documents(800)
    ours, theirs = write_table(tmp_path / "ours", documents), write_table(tmp_path / "theirs", documents)
    pennon.open(ours).create_index(COLUMN, pennon.Inverted(with_position=True, **options), name=NAME)
    expected = pylance_index(theirs, with_position=True, **options)
    [segment] = segments(ours)
    assert segment.details == expected.details
    [by_pennon], [by_pylance] = partition_files(ours, segment), partition_files(theirs, expected)
    assert tokens_by_row(by_pennon) == tokens_by_row(by_pylance)
    assert len(tokens_by_row(by_pennon)) > 500
    assert pennon.open(ours).audit().ok


def test_pylance_finds_what_pennon_indexed_through_deltas_and_merges(tmp_path: Path) -> None:
    documents = json_documents(600)
    uri, other = write_table(tmp_path / "ours", documents), write_table(tmp_path / "theirs", documents)
    pennon.open(uri).create_index(COLUMN, "INVERTED", fragment_ids=[0, 1])
    pennon.open(uri).optimize_indices(num_indices_to_merge=0)
    assert len(segments(uri)) == 2
    pylance_index(other)
    for merged in (False, True):
        if merged:
            pennon.open(uri).optimize_indices(num_indices_to_merge=9)
        for query in ("a,str,the quick", ",null,null", "b,number,3;a,bool,true", "Key.a,number,-1"):
            expected = pylance_search(other, query)
            assert pylance_search(uri, query, fast_search=True) == pytest.approx(expected, rel=1e-5), query
    assert pylance_search(uri, ",null,null")


def test_numbers_have_the_rounding_errors_of_pylance(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    values = [*rng.integers(0, 1 << 63, 4000, dtype=np.uint64).view(np.float64), *(rng.random(500) * 1e4)]
    values += [5e-324, 1e-5, 1e-6, 1e15, 1e16, 1.5e300, -2.5e-310, 0.1, 100.0, -0.0]
    texts = [repr(float(value)) for value in values if np.isfinite(value)]
    uri = write_table(tmp_path / "t", pa.array(texts, pa.json_()), fragments=1)
    [files] = partition_files(uri, pylance_index(uri))
    written: list[str] = lance.dataset(uri).to_table(columns=[COLUMN])[COLUMN].to_pylist()
    expected = {term.decode() for term in terms_and_lists(files, with_positions=False)[0]}
    shown = [displayed_number(text) for text in written]
    assert {f",number,{text}" for text in shown} == expected
    assert shown != written


def test_queries_are_paths_types_and_values() -> None:
    params = TextParams(lance_tokenizer="json")
    found = analyze(params, "a.b,str,running the Cafés;n,number,1e2;,null,null")
    assert [(term.text, term.position) for term in found] == [
        ("a.b,str,run", 0),
        ("a.b,str,cafe", 1),
        ("n,number,1e2", 2),
        (",null,null", 3),
    ]
    for wrong in ("words", "a,str", "a,text,b", ""):
        with pytest.raises(InvalidArgument, match="path,type,value"):
            analyze(params, wrong)


@pytest.mark.parametrize(
    "text",
    ['{"a":1', '{"a" 1}', "[1,]", "[1 2]", "tru", "nulll", '"a', '"\\x"', '"\\ud800"', "{,}", "]", "", "-", '{"a":1}}'],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedColumn, match="not JSON"):
        JsonTokenizer(TextParams()).encode_column(pa.array([text]))


def test_documents_too_deep_for_pylance_are_refused(tmp_path: Path) -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "1" + "]" * depth

    uri = write_table(tmp_path / "t", pa.array([nested(127)], pa.json_()))
    pennon.open(uri).create_index(COLUMN, "INVERTED")
    assert len(pylance_search(uri, ",number,1")) == 1
    deeper = pa.table({"id": [1], COLUMN: pa.array([nested(128)], pa.json_())})
    lance.write_dataset(deeper, uri, mode="append")
    with pytest.raises(UnsupportedColumn, match="127 levels"):
        pennon.open(uri).optimize_indices()


@pytest.mark.parametrize("seed", range(30))
def test_damaged_documents_never_lead_outside_of_their_bytes(seed: int) -> None:
    """Bytes are cut and changed; what is refused is refused by name."""
    rng = np.random.default_rng(seed)
    texts = [text.encode() for text in json_documents(60, seed).storage.to_pylist() if text]
    for text in texts:
        data = bytearray(text[: rng.integers(0, len(text) + 1)])
        for at in rng.integers(0, max(1, len(data)), 2):
            data[at : at + 1] = rng.choice(np.frombuffer(b'{}[]",:\\u1e-\xff\x00', dtype=np.uint8), 1).tobytes()
        column = pa.array([bytes(data)]).view(pa.string())
        try:
            tokens = JsonTokenizer(TextParams()).encode_column(column)
        except UnsupportedColumn:
            continue
        assert len(tokens.documents) == 2
