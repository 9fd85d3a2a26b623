"""The demonstration: realistic tables, indices built on Spark, queries and searches with what they touched."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import click
import numpy as np
import pyarrow as pa

from pennon.cli import render
from pennon.cli.command import verb
from pennon.cli.options import listener
from pennon.errors import InvalidArgument
from pennon.format.append import create_table
from pennon.jobs.shared.placement import VARIABLE
from pennon.query.search.request import SearchOptions
from pennon.table import open_table
from pennon.wording import human_bytes

T = TypeVar("T")

FRAGMENTS = 20
COUNTRIES = ("AT", "BR", "CH", "DE", "FR", "IN", "JP", "KE", "US", "ZA")

ARTICLES, ARTICLE_FRAGMENTS = 200_000, 4
TOPICS, DIMENSION = 1000, 64
SUB_VECTORS, REFINE_FACTOR = 16, 10

show = render.console.print


@verb("demo", example="pennon demo --rows 1000000")
@click.option("--rows", type=int, default=5_000_000, show_default=True, help="Number of rows.")
@click.option("--keep", type=click.Path(), help="Directory to keep the tables in.  [default: temporary]")
def demo(rows: int, keep: str | None) -> None:
    """Make tables, index them with Spark, and query them."""
    directory = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="pennon-demo-"))
    tables = directory / "events.lance", directory / "articles.lance"
    if any(table.exists() for table in tables):
        raise InvalidArgument(f"{directory} holds the tables of a demo already", "Name another folder, or remove them")
    events_uri, articles_uri = map(str, tables)
    os.environ[VARIABLE] = "0"  # what is shown is a build on Spark, however small the table
    try:
        _show_btree(events_uri, rows)
        show()
        _show_vectors(articles_uri)
        if keep:
            show(f"\nThe tables stay in {directory}")
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _show_btree(uri: str, rows: int) -> None:
    show(f"1. A table of {rows:,} events in {FRAGMENTS} fragments", style="bold")
    _, seconds = _timed(
        lambda: create_table(uri, events_schema(), events(rows), rows_per_fragment=-(-rows // FRAGMENTS))
    )
    show(f"   written in {seconds:.1f} s\n")

    table = open_table(uri, engine="spark", progress=listener() or False)
    show("2. The plan of a B-tree on user_id", style="bold")
    show(_indent(str(table.plan_index("user_id"))) + "\n")

    show("3. The build, on Spark (the first job also starts the session)", style="bold")
    _, seconds = _timed(lambda: table.create_index("user_id"))
    show(f"   built and committed in {seconds:.1f} s")
    _, seconds = _timed(lambda: table.create_index("ts"))
    show(f"   a second one, on ts, in {seconds:.1f} s, now that Spark is warm\n")
    render.print_indices(table.indices())

    show("\n4. Queries, and what they touch", style="bold")
    rare = table.scan("user_id between 10000000 and 40000000", ["user_id"], limit=1)
    user = rare["user_id"][0].as_py() if rare.num_rows else 1000
    start = events_start() + 86_400 * 10
    for filter in (
        f"user_id = {user}",
        f"user_id in ({user}, {user + 1}, {user + 2}) and country = 'CH'",
        f"ts >= {_timestamp(start)} and ts < {_timestamp(start + 60)}",
        "user_id is null and amount > 99.9",
    ):
        show(_indent(str(table.explain(filter, analyze=True))) + "\n")

    show("5. Against a full scan", style="bold")
    filter = f"user_id = {user}"
    table.scan(filter)
    found, indexed = _timed(lambda: table.scan(filter))
    scanned, full = _timed(lambda: table.scan(f"user_id + 0 = {user}"))
    assert found.num_rows == scanned.num_rows
    show(f"   {filter}: {found.num_rows} rows in {indexed * 1000:.2f} ms through the index,")
    show(f"   {full * 1000:.0f} ms by a full scan: {full / indexed:,.0f} times longer")


def _show_vectors(uri: str) -> None:
    show(f"6. A table of {ARTICLES:,} articles with embeddings of {DIMENSION} dimensions", style="bold")
    _, seconds = _timed(lambda: create_table(uri, articles_schema(), articles(), ARTICLES // ARTICLE_FRAGMENTS))
    show(f"   written in {seconds:.1f} s\n")

    table = open_table(uri, engine="spark", progress=listener() or False)
    show("7. A vector index on embedding: its plan, and the build on Spark", style="bold")
    show(_indent(str(table.plan_index("embedding", "IVF_PQ", metric="cosine", num_sub_vectors=SUB_VECTORS))))
    built = table.create_index("embedding", "IVF_PQ", metric="cosine", num_sub_vectors=SUB_VECTORS)
    show(f"   built and committed in {built.seconds:.1f} s, {human_bytes(built.bytes_written)}\n")

    show("8. The articles nearest to article 42, through the index and by measuring every one", style="bold")
    [query] = table.scan("article_id = 42", ["embedding"])["embedding"]
    through_index: SearchOptions = {"columns": ["article_id", "topic"], "refine_factor": REFINE_FACTOR}
    exact: SearchOptions = {"columns": ["article_id", "topic"], "use_index": False}
    table.search("embedding", query, **through_index)
    found, indexed = _timed(lambda: table.search("embedding", query, **through_index))
    measured, full = _timed(lambda: table.search("embedding", query, **exact))
    for row in found.slice(1, 3).to_pylist():
        show(f"   article {row['article_id']} of topic {row['topic']}, distance {row['_distance']:.3f}")
    explained = table.explain_search("embedding", query, analyze=True, **through_index)
    show(f"\n{_indent(str(explained))}\n")
    same = len(set(found["article_id"].to_pylist()) & set(measured["article_id"].to_pylist()))
    show(f"   {indexed * 1000:.1f} ms through the index, {full * 1000:.0f} ms by measuring all {ARTICLES:,} vectors;")
    show(f"   {same} of the 10 articles found are the same")


def events_schema() -> pa.Schema:
    return pa.schema(
        [
            ("event_id", pa.int64()),
            ("user_id", pa.int64()),
            ("ts", pa.timestamp("us")),
            ("country", pa.string()),
            ("amount", pa.float64()),
        ]
    )


def events_start() -> int:
    return int(np.datetime64("2026-01-01", "s").astype(np.int64))


def events(rows: int) -> Iterator[pa.RecordBatch]:
    """Users of very different activity, some unknown; time moves on with a little disorder."""
    rng = np.random.default_rng(7)
    for start in range(0, rows, 250_000):
        count = min(250_000, rows - start)
        user = np.minimum(rng.pareto(0.8, count) * 1000, 50_000_000).astype(np.int64)
        seconds = events_start() + (np.arange(start, start + count) / rows * 86_400 * 90).astype(np.int64)
        micros = seconds * 1_000_000 + rng.integers(0, 60_000_000, count)
        yield pa.record_batch(
            [
                pa.array(np.arange(start, start + count)),
                pa.array(user, mask=rng.random(count) < 0.01),
                pa.array(micros).view(pa.timestamp("us")),
                pa.array(np.array(COUNTRIES)[rng.integers(0, len(COUNTRIES), count)]),
                pa.array(rng.random(count) * 100),
            ],
            schema=events_schema(),
        )


def articles_schema() -> pa.Schema:
    embedding = pa.list_(pa.float32(), DIMENSION)
    return pa.schema([("article_id", pa.int64()), ("topic", pa.int64()), ("embedding", embedding)])


def articles() -> Iterator[pa.RecordBatch]:
    """Topics of very different popularity, and every article somewhere around its topic."""
    rng = np.random.default_rng(11)
    centres = rng.standard_normal((TOPICS, DIMENSION), dtype=np.float32)
    for start in range(0, ARTICLES, 50_000):
        count = min(50_000, ARTICLES - start)
        topic = (TOPICS * rng.random(count) ** 2).astype(np.int64)
        embeddings = centres[topic] + rng.standard_normal((count, DIMENSION), dtype=np.float32) * np.float32(0.5)
        yield pa.record_batch(
            [
                pa.array(np.arange(start, start + count)),
                pa.array(topic),
                pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), DIMENSION),
            ],
            schema=articles_schema(),
        )


def _timestamp(seconds: int) -> str:
    return f"timestamp '{np.datetime64(seconds, 's').item():%Y-%m-%d %H:%M:%S}'"


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _indent(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())
