"""`tune`, what it stores, and searches by recall; the oracle is brute force over the rows."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.errors import DoubtfulRecallWarning, InvalidArgument, RecallUnknown
from pennon.index.vector.vectors import to_lists
from pennon.jobs.tune import advise, candidates
from pennon.query.search.tuning import resolve
from pennon.report.facts import collect
from pennon.report.summary import notices
from pennon.table import Table
from tests.support.cli import as_json, done
from tests.support.neighbors import brute_force_over

ROWS, DIM, TARGET = 4000, 16, 0.9


def vectors(count: int, seed: int) -> np.ndarray:
    """Without clusters, so that neighbors are in many partitions."""
    return np.random.default_rng(seed).standard_normal((count, DIM), dtype=np.float32)


def rows(count: int, seed: int, start: int = 0) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "part": ids % 10, "v": to_lists(vectors(count, seed))})


QUERIES = vectors(150, 99)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two indices, and what was measured of them."""
    uri = str(tmp_path_factory.mktemp("tune") / "t.lance")
    lance.write_dataset(rows(ROWS, 1), uri, max_rows_per_file=ROWS // 2)
    lance.dataset(uri).delete("id % 50 = 3")
    table = pennon.open(uri, engine="local")
    table.create_index("v", "IVF_PQ", "by_pq", num_sub_vectors=4, num_partitions=40)
    table.create_index("v", "IVF_SQ", "by_sq", num_partitions=40)
    table.tune("v", TARGET, sample=400, store=True)
    return uri


@pytest.fixture
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates for an index are measured on fewer rows with fewer queries: their recall and their time are known less
    exactly."""
    monkeypatch.setattr(candidates, "QUERIES", 50)
    monkeypatch.setattr(advise, "SAMPLE_ROWS", 3500)
    monkeypatch.setattr(resolve, "FEW_TURNS", 3)
    monkeypatch.setattr(resolve, "FINAL_TURNS", 5)


@pytest.fixture
def uri(made: str, tmp_path: Path) -> str:
    return str(shutil.copytree(made, tmp_path / "t.lance"))


def opened(uri: str) -> Table:
    return pennon.open(uri, engine="local")


def recall(table: Table, k: int = 10, filter: str | None = None, **options: Any) -> float:
    """The share of true neighbors that single searches find."""
    shares = []
    every = lance.dataset(table.uri).to_table(columns=["id", "v"], filter=filter)
    for query in QUERIES:
        found = table.search("v", query, k, filter=filter, columns=["id"], **options)["id"].to_pylist()
        true = brute_force_over(every, query, k)[0]
        shares.append(len(set(true.tolist()) & set(found)) / len(true))
    return float(np.mean(shares))


def test_a_search_has_the_recall_it_was_asked_for_and_expects(made: str) -> None:
    table = opened(made)
    plan = table.explain_search("v", QUERIES[0], recall=TARGET)
    expected = plan.expected
    assert expected is not None
    assert expected.low >= TARGET > 0.9 * expected.low
    found = recall(table, recall=TARGET)
    assert found > TARGET - 0.02, "150 queries have a standard error of 0.01"
    assert abs(found - expected.recall) < 0.04
    assert "stored, measured at version" in str(plan)
    assert f"{TARGET} asked" in str(plan)
    assert "DoubtfulRecall" not in str(plan)
    batch = table.search_batch("v", QUERIES, recall=TARGET, columns=["id"])
    alone = table.search("v", QUERIES[7], recall=TARGET, columns=["id"])
    assert batch.filter(pa.compute.equal(batch["query_index"], 7))["id"] == alone["id"]


@pytest.mark.parametrize("index", ["by_pq", "by_sq"])
@pytest.mark.parametrize("k", [1, 10])
def test_each_index_reaches_it(made: str, index: str, k: int) -> None:
    table = opened(made)
    assert table.explain_search("v", QUERIES[0], k, recall=TARGET, index=index).index == index
    assert recall(table, k, recall=TARGET, index=index) > TARGET - 0.04


def test_the_recall_of_a_result_is_that_of_its_options(made: str) -> None:
    result = opened(made).tune("v", TARGET, queries=QUERIES, index="by_pq")
    assert {setting.index for setting in result.settings} == {"by_pq", None}
    assert (result.queries, result.sampled, result.stored) == (150, False, False)
    for setting in (result.chosen, result.frontier[0]):
        assert recall(opened(made), **setting.options) == pytest.approx(setting.recall, abs=0.02)
    times = [setting.milliseconds for setting in result.frontier]
    assert times == sorted(times)
    assert "every row" in str(result)
    assert "use " in str(result)
    assert "by_pq" in result._repr_html_()
    assert result.to_dict()["chosen"]["index"] == result.chosen.index


def test_a_row_is_not_its_own_answer(made: str) -> None:
    """k=1 would find nothing but the row itself, at any setting."""
    result = opened(made).tune("v", 0.99, 1, sample=300, index="by_sq")
    first = min((s for s in result.settings if s.nprobes == 1 and s.refine_factor is None), key=lambda s: s.recall)
    assert first.recall < 0.6


def test_a_filter_is_measured_and_stored_by_its_shape(uri: str) -> None:
    table = opened(uri)
    table.tune("v", TARGET, filter="part < 5", sample=300, store=True)
    plan = table.explain_search("v", QUERIES[0], recall=TARGET, filter="part < 4")
    assert plan.expected is not None
    assert "stored" in plan.expected.reason
    assert recall(table, filter="part < 4", recall=TARGET) > TARGET - 0.03
    other = table.explain_search("v", QUERIES[0], recall=TARGET, filter="part != 4")
    assert other.expected is not None
    assert "measured by this handle" in other.expected.reason


def test_without_anything_stored_a_handle_measures_once(uri: str) -> None:
    [key] = [key for key in lance.dataset(uri).config() if key.startswith("pennon.tuning.")]
    lance.dataset(uri).delete_config_keys([key])
    table = opened(uri)
    first = table.explain_search("v", QUERIES[0], recall=TARGET)
    again = table.explain_search("v", QUERIES[1], 5, recall=TARGET)
    assert first.expected is not None
    assert again.expected is not None
    assert "measured by this handle in" in first.expected.reason
    assert again.expected.reason == "measured by this handle"
    assert recall(table, recall=TARGET) > TARGET - 0.03


def test_a_large_table_is_not_measured_for_one_search(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MOST_ITEMS", 1000)
    table = opened(uri)
    assert table.search("v", QUERIES[0], recall=TARGET).num_rows == 10, "what is stored is used"
    with pytest.raises(RecallUnknown, match=r"tune\('v', recall=0.9, k=30, store=True\)"):
        table.search("v", QUERIES[0], 30, recall=TARGET)


def test_recall_one_measures_every_row_if_nothing_else_is_certain(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MOST_QUERIES", resolve.LEAST_QUERIES)
    plan = opened(made).explain_search("v", QUERIES[0], recall=1.0)
    assert plan.index is None
    assert plan.expected is not None
    assert plan.expected.recall == 1


def test_wrong_arguments(made: str) -> None:
    table = opened(made)
    for wrong in (0, 1.5, "much", True):
        with pytest.raises(InvalidArgument, match="recall must be"):
            table.search("v", QUERIES[0], recall=wrong)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidArgument, match="recall must be"):
            table.tune("v", wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="recall sets nprobes"):
        table.search("v", QUERIES[0], recall=0.9, nprobes=3)
    with pytest.raises(InvalidArgument, match="too few"):
        table.tune("v", queries=QUERIES[:3])
    with pytest.raises(InvalidArgument, match="too few"):
        table.tune("v", filter="id < 0")


def test_of_several_indices_the_better_one_is_used_and_why(uri: str) -> None:
    [key] = [key for key in lance.dataset(uri).config() if key.startswith("pennon.tuning.")]
    by_measurement = opened(uri).explain_search("v", QUERIES[0])
    assert by_measurement.index == "by_sq"
    assert "of 2 indices, recall 0." in str(by_measurement.choice)
    lance.dataset(uri).delete_config_keys([key])
    by_rule = opened(uri).explain_search("v", QUERIES[0])
    assert by_rule.index == "by_sq"
    assert "its codes are the most exact" in str(by_rule.choice)
    named = opened(uri).explain_search("v", QUERIES[0], index="by_pq")
    assert (named.index, named.choice) == ("by_pq", None)
    lance.dataset(uri).drop_index("by_sq")
    alone = opened(uri).explain_search("v", QUERIES[0])
    assert (alone.index, alone.choice) == ("by_pq", None)


def test_an_index_that_covers_little_is_not_preferred(uri: str) -> None:
    lance.write_dataset(rows(3 * ROWS, 5, ROWS), uri, mode="append")
    table = opened(uri)
    table.optimize_indices(index_names=["by_pq"])
    plan = table.explain_search("v", QUERIES[0])
    assert plan.index == "by_pq"
    assert "covers most rows" in str(plan.choice)


def doubts(uri: str) -> list[str]:
    """What an audit finds of stored measurements; the report has the same."""
    found = [f.problem for f in opened(uri).audit(recall_queries=0).findings if "stored setting" in f.problem]
    shown = [notice.text for notice in notices(collect(opened(uri)._snapshot)) if "stored setting" in notice.text]
    assert len(shown) == len(found)
    return found


def test_a_stored_choice_is_doubted_when_the_table_has_changed(uri: str) -> None:
    assert doubts(uri) == []
    table = opened(uri)
    chosen = table.explain_search("v", QUERIES[0], recall=TARGET).index
    assert chosen is not None
    lance.write_dataset(rows(200, 6, ROWS), uri, mode="append")
    table.refresh()
    table.optimize_indices()
    assert doubts(uri) == [], "a merge keeps the models, and the table has hardly grown"
    lance.write_dataset(rows(2000, 7, 2 * ROWS), uri, mode="append")
    assert "lacks 2,000 rows" in doubts(uri)[0]
    table.refresh()
    table.optimize_indices()
    assert "rows now, it had" in doubts(uri)[0]
    with pytest.warns(DoubtfulRecallWarning, match="measured again"):
        plan = table.explain_search("v", QUERIES[0], recall=TARGET)
    assert plan.expected is not None
    assert "measured by this handle" in plan.expected.reason
    table.create_index("v", "IVF_PQ", chosen, num_sub_vectors=2, num_partitions=40)
    assert f"index '{chosen}' is another one now" in doubts(uri)[0]
    table.drop_index(chosen)
    assert f"index '{chosen}' is gone" in doubts(uri)[0]
    with warnings.catch_warnings(action="ignore"):
        assert recall(table, recall=TARGET) > TARGET - 0.03
    table.tune("v", TARGET, sample=300, store=True)
    assert doubts(uri) == []


def test_pylance_keeps_what_is_stored_and_uses_the_table(uri: str) -> None:
    before = {key: text for key, text in lance.dataset(uri).config().items() if key.startswith("pennon.tuning.")}
    assert len(before) == 1
    assert all(len(text) < 6000 for text in before.values())
    dataset = lance.write_dataset(rows(50, 8, ROWS), uri, mode="append")
    dataset.optimize.optimize_indices()
    dataset.optimize.compact_files()
    assert before.items() <= lance.dataset(uri).config().items()
    table = opened(uri)
    lance.dataset(uri).delete("id % 50 = 7")
    table.refresh()
    table.compact(target_rows_per_fragment=ROWS)
    assert before.items() <= lance.dataset(uri).config().items()
    plan = table.explain_search("v", QUERIES[0], recall=TARGET)
    assert plan.expected is not None
    assert "stored, measured at version" in plan.expected.reason, "compactions keep the models"
    found = lance.dataset(uri).to_table(nearest={"column": "v", "q": QUERIES[0], "k": 5}, columns=["id", "_distance"])
    assert found.num_rows == 5
    lance.dataset(uri).update_config({"pennon.tuning.forged": '{"format": 1}', "mine": "x"})
    assert opened(uri).explain_search("v", QUERIES[0], recall=TARGET).expected is not None


def test_on_spark_the_exact_search_is_distributed(
    uri: str, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENNON_IN_PROCESS_BYTES", "0")
    table = pennon.open(uri)
    here = opened(uri).tune("v", TARGET, filter="part < 7", queries=QUERIES, index="by_sq")
    there = table.tune("v", TARGET, filter="part < 7", queries=QUERIES, index="by_sq")
    by_setting = {(s.nprobes, s.refine_factor): s.recall for s in here.settings}
    assert {(s.nprobes, s.refine_factor): s.recall for s in there.settings} == by_setting
    frame = engine.session.createDataFrame([(QUERIES[n].tolist(), n) for n in range(3)], "q array<float>, n int")
    joined = table.knn_join(frame, "v", "q", 5, columns=["id"], recall=TARGET).orderBy("n", "_rank").collect()
    batch = table.search_batch("v", QUERIES[:3], 5, columns=["id"], recall=TARGET)
    assert [row["id"] for row in joined] == batch["id"].to_pylist()


@pytest.mark.usefixtures("few_queries")
def test_an_index_is_chosen_for_recall_and_memory(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(uri)
    exact = ROWS * DIM * 4
    roomy = table.plan_index("v", recall=TARGET, metric="l2")
    assert "candidates" not in str(roomy)
    assert "in memory" in str(roomy)
    assert "chosen: IVF_" in str(roomy)
    tight = table.advise_index("v", recall=TARGET, memory=exact // 2)
    assert tight.chosen.memory_bytes <= exact // 2
    assert any(each.note == "too large" for each in tight.candidates)
    given = table.advise_index("v", index_type="IVF_PQ", recall=TARGET)
    assert {each.kind for each in given.candidates} == {"IVF_PQ"}
    assert len(given.candidates) > 1

    def searches_again(*arguments: Any, **options: Any) -> None:
        raise AssertionError("known candidates, or none that fits, are searched")

    monkeypatch.setattr(candidates, "tune", searches_again)
    assert table.advise_index("v", recall=TARGET, memory=exact // 2) == tight
    built = table.create_index("v", name="tight", recall=TARGET, memory=f"{exact // 2}B")
    assert built.index.type == tight.chosen.kind
    for recall in (TARGET - 0.1, TARGET):
        with pytest.raises(InvalidArgument, match="no index"):
            table.create_index("v", recall=recall, memory=1000)
    with pytest.raises(AssertionError, match="known candidates"):
        table.advise_index("v", index_type="IVF_PQ", recall=TARGET + 0.01)
    for memory, problem in ((1000, "no index"), ("lots", "number of bytes"), (-1, "number of bytes")):
        with pytest.raises(InvalidArgument, match=problem):
            table.create_index("v", memory=memory)
    with pytest.raises(InvalidArgument, match="do not apply"):
        table.create_index("part", "BTREE", recall=0.9)


@pytest.mark.usefixtures("few_queries")
def test_the_command_line(uri: str) -> None:
    found = as_json("tune", uri, "v", "--recall", "0.9", "--sample", "200", "--index", "by_sq", "--engine", "local")
    assert found["chosen"]["index"] in ("by_sq", None)
    assert not found["stored"]
    vector = str(QUERIES[0].tolist())
    shown = done("search", uri, "v", "--vector", vector, "--recall", "0.9", "--explain", "--engine", "local")
    assert "0.9 asked" in shown
    planned = done("create-index", uri, "v", "--memory", "1MiB", "--dry-run", "--engine", "local")
    assert "chosen: IVF_" in planned
