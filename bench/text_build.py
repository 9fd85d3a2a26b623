"""Building and merging inverted indices: Pennon on Spark `local[2]`, warm, against pylance, on copies of one table.

`PENNON_BENCH_TEXT` and `PENNON_BENCH_LINES` may name Parquet files with a column `text`, of paragraphs and of short
lines; else text is drawn from made-up words whose frequencies are like those of a language.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pennon
from bench.harness import Choice, Grid, fresh, peak_memory, report_grids, say
from bench.timing import TURNS, Timing, interleaved

ROWS, DELTAS = 1_344_796, 8
FRAGMENTS = 8
NAME = "text_idx"
WORDS = 200_000
LINES = 10_000_000
HEADER = ("work", "pylance s", "Pennon s", "speed-up", "largest worker GiB")


def text_build(choice: Choice) -> None:
    """Builds with and without positions, and a merge of 8 deltas."""
    rows, turns = choice.rows or ROWS, choice.turns or TURNS
    say("starting Spark")
    _warm_up()
    grids: list[Grid] = []
    sources: set[str] = set()
    for count, short in ((rows, False), (LINES * rows // ROWS, True)):
        say(f"table of {count:,} {'lines' if short else 'texts'}")
        texts, source = texts_of(count, short)
        sources.add(source)
        size = int(pc.sum(pc.binary_length(texts)).as_py()) / 2**20
        master = str(fresh("texts.lance"))
        lance.write_dataset(pa.table({"text": texts}), master, max_rows_per_file=-(-len(texts) // FRAGMENTS))
        results = [_race_builds(master, positions, turns) for positions in (False, True)]
        if not short:
            results += [_race_merges(master, positions, turns) for positions in (False, True)]
        grids.append(Grid(HEADER, results, f"{len(texts):,} {'lines' if short else 'texts'}, {size:.0f} MiB"))
    report_grids(
        "text-build",
        "Inverted indices",
        grids,
        note=f"{' and '.join(sorted(sources))}; {FRAGMENTS} fragments; default tokenizer: simple, English stems and"
        " stop words. A worker's memory is all that the process holds, libraries included.",
        packages=["numba", "PyStemmer"],
        keep=choice.keep,
    )


def texts_of(rows: int, short: bool = False) -> tuple[pa.Array, str]:
    """Texts, or lines of a few words, and a word on where they come from."""
    path = os.environ.get("PENNON_BENCH_LINES" if short else "PENNON_BENCH_TEXT")
    if path:
        return pq.read_table(path, columns=["text"])["text"].slice(0, rows).combine_chunks(), "Real text"
    rng = np.random.default_rng(7)
    lengths = np.maximum(1, rng.lognormal(1.6 if short else 3.0, 0.9, rows).astype(np.int64))
    letters = rng.integers(97, 123, (WORDS, 12)).astype(np.uint8).tobytes().decode()
    sizes = rng.integers(2, 12, WORDS)
    words = pa.array([letters[12 * n : 12 * n + size] for n, size in enumerate(sizes.tolist())])
    drawn = np.minimum(rng.zipf(1.25, int(lengths.sum())) - 1, WORDS - 1)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), words.take(pa.array(drawn))), " ")
    return joined, "Made-up words with the frequencies of a language"


def _warm_up() -> None:
    """Starts the session and its Python workers on a table of its own."""
    uri = str(fresh("texts-warm-up.lance"))
    lance.write_dataset(pa.table({"text": ["some words of a text"] * 1000}), uri, max_rows_per_file=100)
    pennon.open(uri).create_index("text", "INVERTED", with_position=True, rows_per_task=100)


def _race_builds(master: str, positions: bool, turns: int) -> tuple[object, ...]:
    ours, theirs = _copied(master, "texts-pennon.lance"), _copied(master, "texts-pylance.lance")

    def by_pennon() -> None:
        table = pennon.open(ours)
        if table.indices():
            table.drop_index(NAME)
        table.create_index("text", "INVERTED", NAME, with_position=positions)

    def by_pylance() -> None:
        dataset = lance.dataset(theirs)
        dataset.create_scalar_index("text", "INVERTED", name=NAME, replace=True, with_position=positions)

    label = f"build, {'with' if positions else 'without'} positions"
    taken = interleaved({"pylance": by_pylance, "pennon": by_pennon}, turns)
    # In a run of its own: watching takes time.
    with peak_memory() as peak:
        by_pennon()
    return *_compared(label, taken), f"{peak.largest_worker:.2f}"


def _race_merges(master: str, positions: bool, turns: int) -> tuple[object, ...]:
    """Each run has a fresh copy of a table whose fragments have a segment each; copying takes no part."""
    segmented = _copied(master, "texts-segments.lance")
    for fragment in lance.dataset(segmented).get_fragments()[:DELTAS]:
        table = pennon.open(segmented)
        table.create_index("text", "INVERTED", NAME, with_position=positions, fragment_ids=[fragment.fragment_id])
    merges: dict[str, Callable[[str], object]] = {
        "pylance": lambda uri: lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=DELTAS),
        "pennon": lambda uri: pennon.open(uri).optimize_indices(num_indices_to_merge=DELTAS),
    }
    taken: dict[str, list[float]] = {name: [] for name in merges}
    for _ in range(turns):
        for name, merge in merges.items():
            uri = _copied(segmented, "texts-merged.lance")
            # Both merge what there is with a few new rows, without which pylance has nothing to do.
            lance.write_dataset(pa.table({"text": ["a few new words"] * 10}), uri, mode="append")
            seconds = interleaved({name: lambda merge=merge, uri=uri: merge(uri)}, 1)
            taken[name] += seconds[name].turns
    label = f"merge of {DELTAS} deltas, {'with' if positions else 'without'} positions"
    return *_compared(label, {name: Timing(tuple(seconds)) for name, seconds in taken.items()}), ""


def _compared(label: str, taken: dict[str, Timing]) -> tuple[object, ...]:
    theirs, ours = taken["pylance"], taken["pennon"]
    say(f"{label}: {theirs:.2f}, {ours:.2f}")
    return label, f"{theirs:.2f}", f"{ours:.2f}", f"{theirs.over(ours):.2f}"


def _copied(source: str, name: str) -> str:
    target = fresh(name)
    shutil.copytree(source, target)
    return str(target)
