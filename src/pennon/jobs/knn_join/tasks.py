"""The tasks of a kNN join, and the messages between them.

A chunk is some rows of one Spark partition that are sent and finished together; its place identifies it. Spark sorts
what a gatherer receives by place, on disk if need be, so that a gatherer holds one chunk at a time.

    question   number of the row in its chunk, checksum, query, `probes N` for each segment N the group has a part of:
               the partitions of the group that the query probes, then -1
    payload    number, the number of expected answers, the columns of the row
    answer     number, checksum, distances, addresses

A checksum is that of the query. Spark may compute a partition of the frame again when it loses its result; if rows then
have another order, checksums do not match, and the join fails instead of assigning the neighbors of one row to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.engine.frames import Batches, Delivered, Message
from pennon.errors import BuildFailed, DamagedFile
from pennon.index.vector.vectors import Mask, Positions, Vectors, to_lists, to_matrix
from pennon.jobs.knn_join.plan import KnnJoinPlan
from pennon.jobs.shared.frame_join import Returned, blocks
from pennon.query.search.join_search import JoinSearch
from pennon.query.search.neighbors import NOWHERE, Neighbors
from pennon.query.search.routing import stacked_probes, to_front

NEIGHBORS = "_neighbors"
CHUNK_BITS = 32
# Bytes of questions that a group searches at once.
QUESTION_BYTES = 32 << 20

PAYLOAD = "payload"
Checksums = npt.NDArray[np.uint64]


def search(plan: KnnJoinPlan, added: pa.Schema, batches: Batches) -> Batches:
    """Task: rows of the frame, with their neighbors in the whole table."""
    opened = plan.open()
    returned = Returned(NEIGHBORS, added)
    for rows in blocks(batches, plan.block_rows):
        question, valid = opened.ask(rows.column(plan.query_column))
        found = opened.answer(question) if question.count else Neighbors.none(0)
        yield from _returned(opened, returned, rows, valid, found)


def route_queries(plan: KnnJoinPlan, partition: int, batches: Batches) -> Iterator[Message]:
    """Task: questions to groups, and payloads to their gatherers."""
    opened, group_of = _open(plan), _group_of_partitions(plan)
    for chunk, rows in enumerate(blocks(batches, plan.block_rows)):
        place = partition << CHUNK_BITS | chunk
        queries, valid = opened.read(rows.column(plan.query_column))
        numbers, answers = np.flatnonzero(valid).astype(np.int32), np.zeros(len(valid), dtype=np.int32)
        probes = opened.probes(queries) if len(queries) else []
        checksums = _checksums(queries)
        grouped = [np.where(some < 0, -1, of[some]) for of, some in zip(group_of, probes, strict=False)]
        for group, asking in _by_group(grouped):
            answers[numbers[asking]] += 1
            columns: dict[str, Any] = {"number": numbers[asking], "checksum": checksums[asking]}
            columns["query"] = to_lists(queries[asking])
            for segment in sorted({segment for segment, _, _ in plan.groups[group]}):
                own = np.where(grouped[segment][asking] == group, probes[segment][asking], -1)
                columns[f"probes {segment}"] = to_lists(to_front(own).astype(np.int32))
            yield group, place, pa.record_batch(columns)
        own = [pa.array(np.arange(len(valid), dtype=np.int32)), pa.array(answers)]
        fields = [pa.field(PAYLOAD, pa.int32()), pa.field("answers", pa.int32()), *rows.schema]
        payload = pa.record_batch([*own, *rows.columns], schema=pa.schema(fields))
        yield len(plan.groups) + _gatherer(plan, place), place, payload


def answer_questions(plan: KnnJoinPlan, group: int, delivered: Iterator[Delivered]) -> Iterator[Message]:
    """Task: the answers of one group of partitions to its questions."""
    opened = _open(plan)
    for messages in _gathered(delivered):
        queries = np.concatenate(_each(messages, "query"))
        parts = [
            opened.within(stretch, queries, stacked_probes(_each(messages, f"probes {stretch[0]}")).astype(np.int64))
            for stretch in plan.groups[group]
        ]
        found = Neighbors.merged(parts, plan.request.wanted)
        # Arrow ends the process where lists have no items: a group may hold none but deleted rows.
        found = found.padded(max(1, found.distances.shape[1]))
        start = 0
        for place, batch in messages:
            some = found.of(slice(start, start + batch.num_rows))
            start += batch.num_rows
            columns = {"number": batch.column("number"), "checksum": batch.column("checksum")}
            columns |= {"distances": to_lists(some.distances), "addresses": to_lists(some.addresses)}
            yield _gatherer(plan, place), place, pa.record_batch(columns)


def finish(plan: KnnJoinPlan, added: pa.Schema, delivered: Iterator[Delivered]) -> Batches:
    """Task: chunks, one after another, with the answers of all groups."""
    opened = _open(plan)
    returned = Returned(NEIGHBORS, added)
    for _, messages in groupby(delivered, key=lambda message: message[0]):
        payloads: list[pa.RecordBatch] = []
        answers: list[pa.RecordBatch] = []
        for _, batch in messages:
            (payloads if batch.schema.names[0] == PAYLOAD else answers).append(batch)
        rows, expected = _chunk_rows(payloads)
        queries, valid = opened.read(rows.column(plan.query_column))
        found = Neighbors.none(0)
        if len(queries):
            found = opened.nearest(queries, _merge_answers(plan, answers, queries, valid, expected))
        yield from _returned(opened, returned, rows, valid, found)


def _returned(
    opened: JoinSearch, returned: Returned, rows: pa.RecordBatch, valid: Mask, found: Neighbors
) -> Iterator[pa.RecordBatch]:
    """`found` is for the rows that have a valid query."""
    counts = np.zeros(len(valid), dtype=np.int64)
    counts[valid] = found.counts
    queries = np.concatenate([[0], np.cumsum(valid)]).tolist()

    def fetch(start: int, stop: int) -> pa.Table:
        return opened.rows(found.of(slice(queries[start], queries[stop])))

    return returned.batches(rows, counts, fetch)


def _open(plan: KnnJoinPlan) -> JoinSearch:
    opened = plan.open()
    if opened.segments != plan.segments:
        raise DamagedFile(
            f"a segment of index {plan.request.index!r} of {plan.pin.location.shown} was readable when the kNN join "
            "was planned, but is not any more",
            "Rebuild the index, or pass use_index=False",
        )
    return opened


def _group_of_partitions(plan: KnnJoinPlan) -> list[Positions]:
    """For each segment, the group that each of its partitions belongs to."""
    groups: list[list[int]] = [[] for _ in plan.segments]
    for number, stretches in enumerate(plan.groups):
        for segment, first, end in stretches:
            groups[segment] += [number] * (end - first)
    return [np.array(numbers, dtype=np.int64) for numbers in groups]


def _by_group(probed: Sequence[Positions]) -> Iterator[tuple[int, Positions]]:
    """Each probed group and its queries, given the group of every probe, segment by segment; -1 for none."""
    if not probed:
        return
    queries = len(probed[0])
    pairs = np.unique(np.concatenate(probed, axis=1) * queries + np.arange(queries)[:, None])
    pairs = pairs[np.searchsorted(pairs, 0) :]
    groups, asking = np.divmod(pairs, queries)
    starts = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, len(groups)]):
        yield int(groups[start]), asking[start:stop]


def _checksums(queries: Vectors) -> Checksums:
    item = np.uint8 if queries.dtype == np.uint8 else np.uint16
    words = np.ascontiguousarray(queries).view(item).astype(np.uint64)
    # Odd factors lose no bit; sums and products wrap around.
    return words @ (np.random.default_rng(0).integers(0, 1 << 63, words.shape[1], dtype=np.uint64) * 2 + 1)


def _gatherer(plan: KnnJoinPlan, place: int) -> int:
    partition, chunk = divmod(place, 1 << CHUNK_BITS)
    return (partition + chunk) % plan.gatherers


def _gathered(delivered: Iterator[Delivered]) -> Iterator[list[Delivered]]:
    waiting: list[Delivered] = []
    size = 0
    for message in delivered:
        waiting.append(message)
        size += message[1].nbytes
        if size >= QUESTION_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _each(messages: Sequence[Delivered], column: str) -> list[npt.NDArray[Any]]:
    """A column of lists as matrices, which need not be of one width."""
    return [to_matrix(batch.column(column))[0] for _, batch in messages]


def _chunk_rows(payloads: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, Positions]:
    """The rows of a chunk in order, and the number of expected answers for each."""
    if not payloads:
        raise _changed()
    rows = pa.concat_batches(sorted(payloads, key=lambda batch: batch.column(0)[0].as_py()))
    if not np.array_equal(rows.column(0).to_numpy(), np.arange(rows.num_rows)):
        raise _changed()
    return pa.record_batch(rows.columns[2:], schema=pa.schema(list(rows.schema)[2:])), rows.column(1).to_numpy()


def _merge_answers(
    plan: KnnJoinPlan, answers: Sequence[pa.RecordBatch], queries: Vectors, valid: Mask, expected: Positions
) -> Neighbors:
    """The best of all answers to the queries of a chunk."""
    if not answers:
        if expected.any():
            raise _changed()
        return Neighbors.none(len(queries))
    numbers = np.concatenate([batch.column("number").to_numpy() for batch in answers])
    checksums = np.concatenate([batch.column("checksum").to_numpy() for batch in answers])
    if numbers.max() >= len(valid) or not valid[numbers].all():
        raise _changed()
    which = (np.cumsum(valid) - 1)[numbers]
    counts = np.bincount(which, minlength=len(queries))
    if (checksums != _checksums(queries)[which]).any() or not np.array_equal(counts, expected[valid]):
        raise _changed()
    # The first answer to a query goes into the first column, the second into the second.
    order = np.argsort(which, kind="stable")
    places = np.empty(len(which), dtype=np.int64)
    places[order] = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    width = max(batch.column("distances").type.list_size for batch in answers)
    shape = len(queries), int(counts.max()), width
    distances, addresses = np.full(shape, np.inf, dtype=np.float32), np.full(shape, NOWHERE)
    start = 0
    for batch in answers:
        stop = start + batch.num_rows
        where = which[start:stop], places[start:stop]
        found, at = to_matrix(batch.column("distances"))[0], to_matrix(batch.column("addresses"))[0]
        distances[(*where, slice(found.shape[1]))], addresses[(*where, slice(at.shape[1]))] = found, at
        start = stop
    flat = len(queries), -1
    return Neighbors.nearest(distances.reshape(flat), addresses.reshape(flat), plan.request.wanted)


def _changed() -> BuildFailed:
    return BuildFailed(
        "the DataFrame of a kNN join returned other rows when Spark computed a part of it again",
        "Sort it within its partitions by a unique column, or write it to a file first, and join that",
    )
