"""A column or an index may have any name that Lance takes, and every verb means just that one."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pennon
from pennon.errors import ColumnNotFound, InvalidFilter, PennonError, UnsupportedColumn
from pennon.testing.engines import in_process
from tests.hostile_names.names import INDEXED, NAMES, ROWS, oracle, quoted, vectors, write


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pennon.Table:
    """Each name's column has values of its own, so that another column would answer otherwise."""
    columns = {name: [(i * 7 + at) % (at + 11) for i in range(ROWS)] for at, name in enumerate(NAMES.values())}
    with in_process():
        return pennon.open(write(tmp_path_factory.mktemp("columns") / "t.lance", columns))


@pytest.mark.parametrize("name", [NAMES[kind] for kind in INDEXED], ids=INDEXED)
@pytest.mark.usefixtures("process_engine")
def test_an_index_answers_for_its_own_column(table: pennon.Table, name: str) -> None:
    table.create_index(name, name=name)
    [index] = [index for index in table.indices() if index.name == name]
    assert index.columns == (name,)
    for filter in (f"{quoted(name)} = 3", f"{quoted(name)} in (1, 2) and id > 20", f"NOT ({quoted(name)} < 9)"):
        expected = oracle(table.uri, filter)
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected
        assert table.count(filter) == len(expected)
    explained = table.explain(f"{quoted(name)} = 3", analyze=True)
    assert [use.index for use in explained.indices] == [name]
    assert table.scan(f"{quoted(name)} = 3", [name]).column_names == [name]
    assert table.drop_index(name).index.name == name


@pytest.mark.usefixtures("process_engine")
def test_maintenance_of_all_of_them(tmp_path: Path) -> None:
    few = [NAMES[kind] for kind in ("sql", "newline", "quote", "decomposed", "composed", "alias")]
    columns = {name: [(i + at) % 10 for i in range(ROWS)] for at, name in enumerate(few)}
    uri = write(tmp_path / "t.lance", {**columns, "'v\"": vectors()})
    table = pennon.open(uri)
    for name in few:
        table.create_index(name)
    table.create_index("'v\"", "IVF_FLAT", name=NAMES["html"], num_partitions=2)
    for name in few[:2]:
        before = oracle(uri, f"{quoted(name)} = 4 or id >= 100")
        changed = oracle(uri, f"{quoted(name)} = 4 and id < 100")
        done = table.update_column(name, f"{quoted(name)} + 100", where=f"{quoted(name)} = 4 and id < 100")
        assert done.rows == len(changed)
        assert oracle(uri, f"{quoted(name)} = 104") == changed
        assert oracle(uri, f"{quoted(name)} = 4 or id >= 100") == sorted(set(before) - set(changed))
    table.optimize_indices(index_names=[f"{name}_idx" for name in few[:2]])
    table.compact(target_rows_per_fragment=1000)
    for name in few:
        assert sorted(table.scan(f"{quoted(name)} >= 4", ["id"])["id"].to_pylist()) == oracle(
            uri, f"{quoted(name)} >= 4"
        )
    query = table.scan("id = 4", ["'v\""])["'v\""][0]
    found = table.search("'v\"", query, 3, index=NAMES["html"], filter=f"{quoted(few[0])} != 77", columns=["id"])
    assert found["id"][0].as_py() == 4
    table.tune("'v\"", 0.5, 3, sample=20, filter=f"{quoted(few[0])} != 77", store=True)
    plan = table.explain_search("'v\"", query, 3, recall=0.5, filter=f"{quoted(few[0])} != 78")
    assert plan.expected is not None
    assert "stored" in plan.expected.reason
    assert table.audit(recall_queries=2).ok
    assert table.optimize_indices().plan.steps
    assert NAMES["html"] in {index.name for index in table.indices()}
    assert table.update_column(few[2], "0", where="id < 5", dry_run=True).rows == 5
    for name in few:
        rows = table.scan("id in (3, 4)", ["id", name])
        shifted = rows.set_column(1, name, pc.add(rows[name], 50))
        clause = pennon.Update({name: f"source.{quoted(name)} + target.{quoted(name)}"}, f"source.{quoted(name)} > 0")
        assert table.merge(shifted, on="id", when_matched=clause).rows_updated == 2
        expected = sorted((2 * row[name] + 50) for row in rows.to_pylist())
        assert sorted(table.scan("id in (3, 4)", [name])[name].to_pylist()) == expected
        assert table.update({name: f"{quoted(name)} * 10"}, where=f"{quoted(name)} >= 50 and id = 3").rows_updated == 1
    key = few[0]
    keys = table.scan("id < 1000", [key, few[1]])
    one = keys.slice(0, 1)
    matching = keys[key].to_pylist().count(one[key][0].as_py())
    assert table.merge(one, on=key, when_not_matched=None).rows_updated == matching
    assert table.delete(f"{quoted(key)} = {one[key][0].as_py()}").rows_deleted == matching
    assert table.audit(recall_queries=2).ok


def test_a_name_in_backticks_of_its_own_is_refused_and_no_expression(tmp_path: Path) -> None:
    """pylance itself cannot read such a column."""
    uri = write(tmp_path / "t.lance", {"k": range(ROWS), "k` + `k": range(ROWS)})
    table = pennon.open(uri)
    for attempt in (
        lambda: table.update_column("k` + `k", "0", where="id < 5"),
        lambda: table.create_index("k` + `k"),
        lambda: table.scan("`k`` + ``k` = 2"),
        lambda: table.scan(columns=["k` + `k"]),
    ):
        with pytest.raises(PennonError):
            attempt()
    with pytest.raises(UnsupportedColumn, match="Rename it"):
        table.create_index("k` + `k")
    assert lance.dataset(uri).version == 1


def test_nested_names(tmp_path: Path) -> None:
    inner = pa.array([{"a.b": i % 5, "it's": i % 7} for i in range(ROWS)])
    uri = write(tmp_path / "t.lance", {'say "hi"': inner})
    table = pennon.open(uri)
    for path in ('say "hi".`a.b`', 'say "hi".it\'s'):
        assert table._snapshot.column(path).path == path  # pyright: ignore[reportPrivateUsage]
    for filter in ('`say "hi"`.`a.b` = 3', '`say "hi"`.`it\'s` = 3'):
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == oracle(uri, filter)


def test_names_that_look_alike_are_not_alike(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance", {NAMES["composed"]: range(ROWS), "nul": range(ROWS), "UPPER": range(ROWS)})
    table = pennon.open(uri)
    with pytest.raises(InvalidFilter, match="does not have"):
        table.count(f"`{NAMES['decomposed']}` = 3")
    for other in (NAMES["decomposed"], "nul\0l", "upper", "`UPPER`", "UPPER ", "nul/../UPPER"):
        with pytest.raises(ColumnNotFound) as caught:
            table.create_index(other)
        assert "\0" not in str(caught.value)
    with pytest.raises(ColumnNotFound):
        table.scan(columns=["`UPPER`"])
