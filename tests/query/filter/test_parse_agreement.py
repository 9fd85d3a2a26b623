"""The tree of a filter is true for exactly the rows that Lance's own full scan returns for the same text.

The oracle is stock pylance without any index. The rows of a tree are found from its intervals by comparing values in
the order the format defines, written anew here, and from its opaque parts by scanning for their text alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pennon.errors import InvalidFilter
from pennon.index.conditions import ColumnRanges, ContainsText, HasLabels
from pennon.query.filter.parse import parse_filter
from pennon.query.filter.predicate import And, Node, Opaque, Or

Rows = frozenset[int]
Literals = list[str]

DAY = 86_400
NEW_YEAR = 18_262  # days from the epoch to 2020-01-01


def each(text: str) -> Literals:
    return [part.strip() for part in text.split(";")]


def words(text: str) -> Literals:
    return text.split()


def integers(type_: pa.DataType) -> pa.Array:
    bits = type_.bit_width
    low, high = (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(type_) else (-(1 << bits - 1), (1 << bits - 1) - 1)
    candidates = [
        0,
        1,
        2,
        3,
        -1,
        -2,
        low,
        low + 1,
        high,
        high - 1,
        127,
        128,
        2**24 + 1,
        2**53,
        2**53 + 1,
        -(2**53) - 1,
        2**63,
    ]
    return pa.array(sorted({value for value in candidates if low <= value <= high}), type_)


def floats(type_: pa.DataType) -> pa.Array:
    width = type_.bit_width // 8
    info = np.finfo(f"f{width}")
    usual = [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, -1.5, 0.1, -0.1, 2.0, 2048, 2050, 16777216, np.inf, -np.inf, np.nan]
    usual += [info.max, info.min, info.smallest_subnormal, np.nextafter(info.dtype.type(1), info.dtype.type(2))]
    with np.errstate(all="ignore"):
        values = np.array(usual).astype(info.dtype)
    quiet = values[15:16].view(f"u{width}")
    sign = np.array([1 << (8 * width - 1)], dtype=quiet.dtype)
    nans = np.concatenate([quiet | sign, quiet + 1, (quiet + 1) | sign]).view(info.dtype)  # other signs and payloads
    return pa.array(np.concatenate([values, nans]), type_)


def moments(type_: pa.DataType) -> pa.Array:
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit]
    around = [0, NEW_YEAR * DAY, NEW_YEAR * DAY + 5 * 3600, NEW_YEAR * DAY - 2 * 3600, (NEW_YEAR + 1) * DAY, -DAY]
    values = [second * ticks + offset for second in around for offset in (-1, 0, 1)]
    values += [NEW_YEAR * DAY * ticks + ticks // 2, -(2**62), 2**62] if type_.unit == "ns" else [-(10**6) * ticks]
    return pa.array(sorted(set(values)), type_)


def decimals(type_: pa.DataType) -> pa.Array:
    digits = type_.precision - type_.scale
    texts = ["0", "1", "-1", "3", "-3", "9" * digits, "-" + "9" * digits]
    texts += ["1.5", "-3.3", "1.1"] if type_.scale else []
    return pa.array([Decimal(text) for text in texts], type_)


TEXTS = [*each("; a; A; ab; abc; ac; a%; a_; b; é; éa; ê; z; 1; it's"), "a\\b", "\U0010ffff", "\ud7ff\ue000"]
BYTES = [b"", b"\x00", b"a", b"aa", b"ab", b"ab\x00", b"b", b"\xff", b"\xff\xff"]

SMALL = ["0", "1", "-1", "3", "01"]
HUGE = each("""
    9007199254740993; 9223372036854775807; 9223372036854775808; 18446744073709551615; 18446744073709551616
""")
CAST_INTEGERS = each("""
    cast(1 as bigint); cast(3 as int); 1::smallint; cast(200 as tinyint); cast('1' as bigint);
    cast(1.5 as double)
""")
REALS = each("""
    0.0; -0.0; -0; 0.1; -0.1; 0.5; 1.; .5; 1e0; 1.5; 2049; 65504; 65519; 65520; 1e39; -1e39; 1e999; 1e-50
""")
CAST_REALS = [f"cast('{text}' as double)" for text in ("nan", "NaN", "-nan", "inf", "-inf", "0.1", "-0.0", "1.5")]
CAST_REALS += each("""
    cast(0.1 as float); cast(0.5 as float); cast(0.1 as double); cast(1 as double); cast('nan' as float); 1.5::double
""")
STRINGS = each(r"""
    'a'; "a"; ''; 'ab'; 'é'; 'it''s'; 'z'; '1'; '2020-01-01'; 'true'; '\'; cast('a' as string)
""")
BINARY = ["X''", "X'61'", "x'6162'", "X'ff'", "X'1'", "X'zz'", "0x6162", "X'616200'"]
DATES = each("""
    date '2020-01-01'; DATE '1970-01-01'; cast('2020-01-02' as date); date '1969-12-31'; '2020-01-01'::date;
    date '0001-01-01'; date '2500-01-01'; date '2020-1-1'; date '2020-02-30'
""")
TIMES = each("""
    timestamp '2020-01-01'; datetime '2020-01-01'; timestamp '2020-01-01 00:00:00'; TIMESTAMP '1970-01-01T00:00:00';
    timestamp '1969-12-31 23:59:59'; timestamp '2020-01-01 00:00:00.5'; timestamp '1969-12-31 23:59:59.5';
    timestamp '2020-01-01 00:00:00.000001'; timestamp '2020-01-01 00:00:00.0000015';
    cast('2020-01-01 05:00:00' as timestamp); cast('2020-01-01' as timestamp(9));
    cast('2020-01-01 00:00:00.25' as timestamp(3)); timestamp '2500-01-01'; timestamp '0001-01-01';
    timestamp '2020-01-01 00:00:60'; timestamp '2020-01-01T00:00:00Z';
    timestamp '2020-01-01 00:00:00+02:00'; timestamp '2019-12-31 22:00:00'; timestamp '2020-01-01 00:00'
""")
DECIMALS = each("""
    cast(1.5 as decimal(10,1)); cast('1.5' as decimal(10,1)); cast(1 as decimal(38,0)); cast(3.0 as decimal(10,1));
    cast(1.10 as decimal(10,2)); cast(-3.3 as decimal(5,3)); cast(1.25 as decimal(10,1));
    cast(99999 as decimal(3,0)); 99999999999; 999999999
""")
CONSTANTS = ["TRUE", "false", "NULL", "cast(NULL as bigint)"]


@dataclass(frozen=True)
class Kind:
    """A column type, values to store in it, and the literals worth every operator; the others get a few."""

    type: pa.DataType
    values: Callable[[pa.DataType], pa.Array]
    literals: Literals = field(default_factory=list)


def texts(type_: pa.DataType) -> pa.Array:
    return pa.array(TEXTS, type_)


def binaries(type_: pa.DataType) -> pa.Array:
    width = getattr(type_, "byte_width", None) if pa.types.is_fixed_size_binary(type_) else None
    return pa.array([value for value in BYTES if width is None or len(value) == width], type_)


def plain(*values: object) -> Callable[[pa.DataType], pa.Array]:
    return lambda type_: pa.array(values, type_)


def edges(bits: int) -> Literals:
    half, full = 1 << (bits - 1), 1 << bits
    return SMALL + [str(edge) for edge in (half - 1, half, -half + 1, -half, -half - 1, full - 1, full)] + CAST_INTEGERS


FLOAT_LITERALS = SMALL + REALS + CAST_REALS + ["16777217", *HUGE]
KINDS: dict[str, Kind] = {
    **{f"i{bits}": Kind(getattr(pa, f"int{bits}")(), integers, edges(bits)) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": Kind(getattr(pa, f"uint{bits}")(), integers, edges(bits)) for bits in (8, 16, 32, 64)},
    **{f"f{bits}": Kind(getattr(pa, f"float{bits}")(), floats, FLOAT_LITERALS) for bits in (16, 32, 64)},
    "b": Kind(pa.bool_(), plain(True, False), ["TRUE", "FALSE", "1"]),
    "d32": Kind(pa.date32(), plain(0, NEW_YEAR, NEW_YEAR + 1, -1, 10**5), DATES + TIMES[:2]),
    "d64": Kind(pa.date64(), plain(*(1000 * DAY * day for day in (0, NEW_YEAR, NEW_YEAR + 1, -1))), DATES + TIMES[:2]),
    **{f"t{unit}": Kind(pa.timestamp(unit), moments, TIMES + DATES) for unit in ("s", "ms", "us", "ns")},
    "utc_s": Kind(pa.timestamp("s", "UTC"), moments, TIMES + DATES[:2]),
    "utc_ns": Kind(pa.timestamp("ns", "+00:00"), moments, TIMES + DATES[:2]),
    "cairo": Kind(pa.timestamp("ms", "+02:00"), moments, TIMES + DATES[:2]),
    "york": Kind(pa.timestamp("us", "America/New_York"), moments, TIMES + DATES[:2]),
    "dec": Kind(pa.decimal128(10, 1), decimals, SMALL + DECIMALS),
    "dec0": Kind(pa.decimal128(38, 0), decimals, SMALL + DECIMALS),
    "dec10": Kind(pa.decimal128(38, 10), decimals, SMALL + DECIMALS),
    "dec256": Kind(pa.decimal256(50, 3), decimals, SMALL + DECIMALS + HUGE),
    "s": Kind(pa.string(), texts, STRINGS),
    "ls": Kind(pa.large_string(), texts, STRINGS),
    "bin": Kind(pa.binary(), binaries, BINARY),
    "lbin": Kind(pa.large_binary(), binaries, BINARY),
    "fsb": Kind(pa.binary(2), binaries, BINARY),
    "time": Kind(pa.time32("s"), plain(0, 1, 3), SMALL[:2]),
    "time_ns": Kind(pa.time64("ns"), plain(0, 1, 3), SMALL[:2]),
    "duration": Kind(pa.duration("ms"), plain(0, 1, -3), SMALL[:2]),
}
POOL = each("1; 300; 0.1; cast(1.5 as double); 'a'; '2020-01-01'; X'6162'; date '2020-01-01'; timestamp '2020-01-01'")
POOL += ["cast(1.5 as decimal(10,1))", *CONSTANTS]

HEIGHT = 32


def total_order(array: pa.Array) -> list[object]:
    """A key per row that sorts as the B-tree does; None for NULL."""
    if pa.types.is_floating(array.type):
        width = array.type.bit_width // 8
        bits = array.fill_null(0).to_numpy(zero_copy_only=False).view(f"u{width}").tolist()
        top = 1 << (8 * width - 1)
        keys = [value ^ (2 * top - 1) if value & top else value | top for value in bits]
        return [key if valid else None for key, valid in zip(keys, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    if str(array.type) in ("string", "large_string"):
        return [None if value is None else value.encode() for value in array.to_pylist()]
    return array.to_pylist()


class RefusedAlone(Exception):
    """Lance takes the part only within the filter, such as `- NULL`, which alone has no truth value."""


LISTS = {
    "tags": pa.array([["a", "b"], ["b"], [], None, ["a", None], [None], ["c", "c"], ["", "a", "it's"]]),
    "large": pa.array([["a"], None, []], pa.large_list(pa.large_string())),
    "ns": pa.array([[1, 2], [2], [], None, [1, None], [None], [-3, -3]], pa.list_(pa.int32())),
    "us": pa.array([[1, 2**64 - 1], [], None], pa.list_(pa.uint64())),
    "bs": pa.array([[True], [False, None], [True, False], [], None], pa.list_(pa.bool_())),
    "fs": pa.array([[0.1, 1.0], [-0.0], [], None], pa.list_(pa.float64())),
}


def repeated(values: pa.Array) -> pa.Array:
    return values.take(pa.array([row % len(values) for row in range(HEIGHT)]))


@dataclass(repr=False)
class World:
    """One table in Lance, and both ways to ask it."""

    dataset: lance.LanceDataset
    table: pa.Table
    keys: dict[str, list[object]] = field(default_factory=dict)
    opaque: dict[str, Rows] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, pa.DataType]:
        paths = {name: self.table.schema.field(name).type for name in self.table.column_names}
        return paths | {f"st.{inner.name}": inner.type for inner in self.table.schema.field("st").type}

    def __repr__(self) -> str:
        return "World"

    def scan(self, sql: str) -> Rows | None:
        """The rows of a full scan; None if Lance refuses the filter."""
        try:
            found = self.dataset.scanner(filter=sql, columns=["row"], use_scalar_index=False).to_table()
        except (OSError, ValueError, RuntimeError):
            return None
        return frozenset(found["row"].to_pylist())

    def rows(self, node: Node) -> Rows:
        """The rows a tree stands for."""
        if isinstance(node, And):
            everything = frozenset(range(self.table.num_rows))
            return everything.intersection(*(self.rows(child) for child in node.children))
        if isinstance(node, Or):
            return frozenset().union(*(self.rows(child) for child in node.children))
        if isinstance(node, Opaque):
            if node.sql not in self.opaque:
                found = self.scan(node.sql)
                if found is None:
                    raise RefusedAlone(node.sql)
                self.opaque[node.sql] = found
            return self.opaque[node.sql]
        if isinstance(node, HasLabels):
            return self.labeled(node)
        if isinstance(node, ContainsText):
            return self.containing(node)
        ends = list(bounds(node))
        keys = enumerate(self.column(node.column))
        return frozenset(row for row, key in keys if (node.nulls if key is None else within(ends, key)))

    def labeled(self, node: HasLabels) -> Rows:
        assert all(label is None or label.type == node.type.value_type for label in node.labels)
        wanted = [None if label is None else label.as_py() for label in node.labels]
        meets = all if node.every else any
        lists = enumerate(self.table[node.column].to_pylist())
        return frozenset(
            row for row, own in lists if own is not None and meets(one in own for one in wanted) != node.negated
        )

    def containing(self, node: ContainsText) -> Rows:
        fold = str.lower if node.any_case else str
        root, *rest = node.column.split(".")
        texts = self.table[root].combine_chunks()
        for part in rest:
            texts = pa.compute.struct_field(texts, part)
        return frozenset(
            row
            for row, text in enumerate(texts.to_pylist())
            if text is not None and all(fold(piece) in fold(text) for piece in node.pieces)
        )

    def column(self, path: str) -> list[object]:
        if path not in self.keys:
            root, *rest = path.split(".")
            array = self.table[root].combine_chunks()
            for part in rest:
                array = pa.compute.struct_field(array, part)
            self.keys[path] = total_order(array)
        return self.keys[path]


def within(ends: list[tuple[object, bool, object, bool]], key: object) -> bool:
    return any(
        (low is None or low < key or (low_inclusive and low == key))
        and (high is None or key < high or (high_inclusive and key == high))
        for low, low_inclusive, high, high_inclusive in ends
    )


def bounds(ranges: ColumnRanges) -> Iterator[tuple[object, bool, object, bool]]:
    for interval in ranges.intervals:
        ends: list[object] = []
        for scalar in (interval.low, interval.high):
            assert scalar is None or scalar.type == ranges.type
            ends.append(None if scalar is None else total_order(pa.repeat(scalar, 1))[0])
        yield ends[0], interval.low_inclusive, ends[1], interval.high_inclusive


def leaves(node: Node) -> list[Node]:
    return [leaf for child in node.children for leaf in leaves(child)] if isinstance(node, And | Or) else [node]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    columns: dict[str, pa.Array] = {}
    for shift, (name, kind) in enumerate(KINDS.items()):
        values = pa.concat_arrays([kind.values(kind.type), pa.nulls(1, kind.type)])
        assert len(values) <= HEIGHT
        # Each column starts elsewhere in its values, so that two columns do not move together.
        columns[name] = values.take(pa.array([(row + 3 * shift) % len(values) for row in range(HEIGHT)]))
    parts = [columns["i32"], columns["f32"], columns["s"], columns["u64"]]
    nulls = pa.array([row % 7 == 0 for row in range(HEIGHT)])
    columns["st"] = pa.StructArray.from_arrays(parts, names=["i", "f", "s", "u"], mask=nulls)
    columns |= {name: repeated(values) for name, values in LISTS.items()}
    columns["row"] = pa.array(range(HEIGHT))
    path: Path = tmp_path_factory.mktemp("agreement") / "table.lance"
    dataset = lance.write_dataset(pa.table(columns), str(path))
    return World(dataset, dataset.to_table())


def agree(world: World, sql: str, single: bool = True) -> Node | None:
    """Checks one filter; returns its tree, or None if Lance refuses the filter.

    Of a `single` condition that Lance refuses nothing may be answered; of several, a refused one may have had no say.
    """
    expected = world.scan(sql)
    try:
        node = parse_filter(sql, world.columns)
    except InvalidFilter as error:
        # Lance reads a filter up to the first word it has no use for and forgets the rest: that must not pass silently.
        forgetful = any(text in str(error) for text in ("has no matching", "operator before", "follows the filter"))
        if expected is not None and not forgetful:
            raise AssertionError(f"Lance reads {sql!r}") from error
        return None
    if expected is None:
        constant = node in (And(()), Or(()))
        assert not single or not node.exact or constant, f"Lance refuses {sql!r}, but the tree answers it: {node}"
        return None
    world.opaque[sql] = expected
    try:
        found = world.rows(node)
    except RefusedAlone:
        assert not single, f"{sql!r} became {node}"
        return None
    if all(leaf.exact or isinstance(leaf, Opaque) for leaf in leaves(node)):
        assert found == expected, f"{sql!r} became {node}"
    else:
        assert found >= expected, f"{sql!r} became {node}"
    return node


def forms(column: str, literal: str, other: str) -> Iterator[str]:
    for operator in ("=", "!=", "<", "<=", ">", ">="):
        yield f"{column} {operator} {literal}"
    yield f"{literal} < {column}"
    yield f"{literal} >= {column}"
    yield f"NOT {column} = {literal}"
    yield f"NOT ({column} <= {literal})"
    yield f"NOT (NOT ({column} > {literal}))"
    yield f"{column} BETWEEN {literal} AND {other}"
    yield f"{column} NOT BETWEEN {other} AND {literal}"
    yield f"NOT ({column} BETWEEN {other} AND {literal})"
    yield f"{column} IN ({literal})"
    yield f"{column} NOT IN ({literal}, {other})"
    yield f"{column} IN ({literal}, {other}, NULL)"
    yield f"NOT ({column} IN ({literal}, {other}))"
    yield f"{column} NOT IN ({literal}, NULL)"
    yield f"{column} IN ({', '.join([literal, other, literal, other])})"


def grid(column: str, literals: Literals, step: int) -> Iterator[str]:
    """Every form of every literal, or only each third of them, other ones from literal to literal."""
    for number, literal in enumerate(literals):
        other = literals[(number + 1) % len(literals)]
        yield from itertools.islice(forms(column, literal, other), number % step, None, step)


STEPS = [pytest.param(3, id="thin"), pytest.param(1, id="full", marks=pytest.mark.heavy)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", KINDS)
def test_every_operator_and_literal_of_a_type_means_what_it_means_to_lance(world: World, name: str, step: int) -> None:
    trees = [agree(world, sql) for sql in grid(name, KINDS[name].literals, step)]
    answered = sum(tree is not None and not isinstance(tree, Opaque) for tree in trees)
    # Were everything opaque, nothing would be tested.
    assert answered > len(trees) / 10 or name in ("time", "time_ns", "duration", "fsb")


@pytest.mark.parametrize("name", KINDS)
def test_a_literal_of_any_other_type_means_what_it_means_to_lance(world: World, name: str) -> None:
    for literal in POOL:
        for sql in (
            f"{name} <= {literal}",
            f"{name} == {literal}",
            f"{name} <> {literal}",
            f"NOT ({name} > {literal})",
            f"{name} IN ({literal}, {literal})",
            f"NOT ({name} IN ({literal}))",
            f"{name} BETWEEN {literal} AND NULL",
            f"{name} NOT BETWEEN NULL AND {literal}",
        ):
            agree(world, sql)


@pytest.mark.parametrize("name", [*KINDS, "st", "st.i", "st.f", "st.s", "st.u"])
def test_null_and_truth_tests_mean_what_they_mean_to_lance(world: World, name: str) -> None:
    for test in ("NULL", "TRUE", "FALSE"):
        for sql in (
            f"{name} IS {test}",
            f"{name} IS NOT {test}",
            f"NOT ({name} IS {test})",
            f"NOT {name} IS NOT {test}",
        ):
            agree(world, sql)
    for sql in (
        name,
        f"NOT {name}",
        f"NOT (NOT {name})",
        f"{name} NOT NULL",
        f"{name} = NULL",
        f"NOT ({name} != NULL)",
    ):
        agree(world, sql)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("column", ["st.i", "st.f", "st.s", "st.u"])
def test_fields_of_structs_are_compared_as_lance_compares_them(world: World, column: str, step: int) -> None:
    literals = {"st.f": FLOAT_LITERALS, "st.s": STRINGS}.get(column, edges(32))
    for sql in grid(column, literals, step):
        agree(world, sql)


PATTERNS = each(r"a; ; a%; %; a%%; %a; a_; a_c%; ab%c; _; a\%; a\b; \; é%; it''s%; z%")
PATTERNS += ["\ud7ff%", "\U0010ffff%"]


@pytest.mark.parametrize("name", ["s", "ls", "st.s", "bin", "i32"])
def test_patterns_match_what_they_match_in_lance(world: World, name: str) -> None:
    for pattern in PATTERNS:
        for sql in (
            f"{name} LIKE '{pattern}'",
            f"{name} NOT LIKE '{pattern}'",
            f"NOT ({name} LIKE '{pattern}')",
            f"{name} ILIKE '{pattern}'",
            f"{name} LIKE '{pattern}' ESCAPE '\\'",
            f"starts_with({name}, '{pattern}')",
            f"NOT starts_with({name}, '{pattern}')",
        ):
            agree(world, sql)
    for sql in (
        f"{name} LIKE NULL",
        f"starts_with({name}, NULL)",
        f"STARTS_WITH({name}, 'a')",
        f"starts_with('ab', {name})",
    ):
        agree(world, sql)


LABELS = each("""
    'a'; 'c'; 'none'; ''; 'it''s'; "a"; 1; 2; -3; 99999999999; 18446744073709551615; 1.0; 0.1; -0.0; true; false; NULL;
    date '2020-01-01'; cast('a' as string); cast(1 as bigint)
""")


@pytest.mark.parametrize("name", list(LISTS))
def test_labels_mean_what_they_mean_to_lance(world: World, name: str) -> None:
    answered = 0
    for at, label in enumerate(LABELS):
        other = LABELS[(at + 1) % len(LABELS)]
        for condition in (
            f"array_has({name}, {label})",
            f"ARRAY_CONTAINS({name}, {label})",
            f"list_has({name}, {label})",
            f"list_contains({name}, {label})",
            f"array_has_any({name}, [{label}])",
            f"array_has_any({name}, [{label}, {other}])",
            f"array_has_all({name}, [{label}, {other}, NULL])",
            f"array_has_all({name}, [{label}])",
        ):
            for sql in (condition, f"NOT {condition}", f"NOT (NOT ({condition}))", f"{condition} IS NOT TRUE"):
                answered += isinstance(agree(world, sql), HasLabels)
    assert answered >= (0 if name in ("fs", "us") else 20)
    for sql in (
        f"array_has_any({name}, [])",
        f"NOT array_has_all({name}, [])",
        f"array_has_any({name}, make_array('a', 'b'))",
        f"array_has({name.upper()}, 'a')",
        f"array_has('a', {name})",
        f"array_has({name})",
        f"array_has_any({name}, ['a',])",
        f"{name}[1] = 'a' AND i8 = 1",
        f"array_length({name}) > 1",
        f"array_has({name}, 'a') AND array_has({name}, 'b')",
        f"array_has({name}, 'a') OR i8 IN (1, 2)",
    ):
        agree(world, sql, single=False)


NEEDLES = each(
    r"a; ab; ; it''s; A; é; %; b\; zzz; a.c; ^a; b$; a+b; (a|b)c; [ab]c; ab?; \w+b; a|b; (?i)AB; ab{0,2}; a\."
)


@pytest.mark.parametrize("name", ["s", "ls", "sv", "st.s", "i32"])
def test_searches_for_parts_of_a_text_find_all_that_lance_finds(world: World, name: str) -> None:
    for needle in NEEDLES:
        for condition in (
            f"contains({name}, '{needle}')",
            f"{name} LIKE '%{needle}%'",
            f"{name} ILIKE '%{needle}%'",
            f"{name} LIKE '{needle}%{needle}_'",
            f"regexp_like({name}, '{needle}')",
            f"regexp_like({name}, '{needle}', 'i')",
            f"regexp_match({name}, '{needle}') IS NOT NULL",
            f"regexp_match({name}, '{needle}', 'i') IS NOT NULL",
            f"regexp_match({name}, '{needle}') IS NULL",
        ):
            agree(world, condition)
            agree(world, f"NOT ({condition})")


ATOMS = each("""
    i8 = 1; i64 > 9007199254740992; u64 <= 18446744073709551614; f32 < 0.1; f32 != 0; f64 >= -0.0; f64 > 1;
    f64 = cast('nan' as double); f64 < cast('inf' as double); f32 IN (0.1, 0, 1.5);
    f64 NOT IN (0, 1, 2, 3, 4); b; b IS NOT TRUE; b = FALSE; s LIKE 'a%'; s NOT LIKE 'a%'; s > 'ab';
    s IN ('a', 'é', NULL); ls = 'it''s'; s LIKE 'a_c%'; tus >= timestamp '2020-01-01';
    york < timestamp '2020-01-01'; d32 BETWEEN date '1970-01-01' AND date '2020-01-01'; dec > 1;
    bin < X'6162'; st.i IN (1, 2, 3); st.i IS NULL; i8 NOT BETWEEN -1 AND 2; i8 IN (1, 2, 3, 127);
    i8 NOT IN (1, NULL); TRUE; FALSE; NULL = i8; i8 + 1 = 2; i8 < i16; abs(f64) > 1; isnan(f64);
    s LIKE '%b'; i16 * 2 - 1 < 3 % 2; cast(i8 as double) < 1.5; s || 'x' = 'ax'; b = (i8 = 1); i8 = -(1);
    1 + 1 = i8; f32 IS NOT NULL; s IS NULL; i8 IN (1, 2, 3, 127); i8 NOT IN (1, 2, 3, 127);
    i8 NOT IN (0, -1, -2, -128); i8 NOT IN (1, 0, 3, -1, NULL); i8 IN (1, 2, NULL, -1, 0);
    f64 NOT IN (1, 2, 3, 4); f64 != 0; f64 = -0.0; st.i NOT IN (1, 2); st.i NOT IN (3);
    (i8 IN (1, 2, 3, 4)) = TRUE; (i8 NOT IN (0, -1, 5, 6)) = TRUE; s LIKE '%'; s NOT LIKE '%';
    f64 BETWEEN 0 AND 0; starts_with(s, 'a'); i8 >= -128; i8 > 127; u8 >= 0; f64 <= cast('-inf' as double);
    1 = 1; coalesce(i8, 1) = 1; array_has(tags, 'a'); array_has_any(ns, [1, 2]); array_has_all(tags, ['a', NULL]);
    contains(s, 'b'); s ILIKE '%B%'; regexp_like(s, 'a.c'); regexp_match(s, 'b') IS NOT NULL
""")


MEMBERS = ["1, 2, 3, 127", "0, -1, 5, 6", "1, 0, 7, 8, 9", "1, NULL, 3, 4", "2"]


@pytest.mark.parametrize("joined", [" AND ", " OR "])
@pytest.mark.parametrize("column", ["i8", "f64", "st.i"])
def test_several_lists_on_one_column_mean_what_they_mean_to_lance(world: World, column: str, joined: str) -> None:
    lists = [f"{column} {word} ({members})" for members in MEMBERS for word in ("IN", "NOT IN")]
    lists += [f"{column} != 0", f"({column} IN (1, NULL, 3, 4)) = FALSE"]
    for one, other in itertools.product(lists, lists):
        agree(world, one + joined + other)
        agree(world, f"NOT ({one}{joined}{other})")
        if one < other:
            agree(world, f"(b AND {one}){joined}(b AND {other})")
            agree(world, f"b OR {one} AND NOT {other}")


def expressions() -> st.SearchStrategy[str]:
    def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        words = st.sampled_from(["AND", "OR", "and", "Or"])
        chains = st.lists(st.tuples(words, inner), min_size=1, max_size=3)
        return st.one_of(
            inner.map(lambda text: f"({text})"),
            inner.map(lambda text: f"NOT {text}"),
            inner.map(lambda text: f"NOT ({text})"),
            inner.map(lambda text: f"({text}) IS TRUE"),
            st.tuples(inner, chains).map(lambda pair: pair[0] + "".join(f" {word} {text}" for word, text in pair[1])),
        )

    return st.recursive(st.sampled_from(ATOMS), joined, max_leaves=8)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sql=expressions())
def test_any_combination_means_what_it_means_to_lance(world: World, sql: str) -> None:
    agree(world, sql, single=False)


TIGHT = each("""
    b = b; i8 = 1; i8 < 3; s LIKE 'a%'; i8 IN (1, 2); i8 BETWEEN 1 AND 2; b IS NULL; b IS NOT TRUE; b; TRUE;
    s = 'a'
""")
GLUE = [" AND ", " OR ", " = ", " != ", " < ", " IS NULL AND ", " IS NOT TRUE OR ", " AND NOT ", " OR NOT ", " = NOT "]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.sampled_from(TIGHT),
    rest=st.lists(st.tuples(st.sampled_from(GLUE), st.sampled_from(TIGHT)), max_size=3),
    negated=st.sampled_from(["", "NOT ", "NOT NOT ", "not(b) and "]),
)
def test_operators_bind_as_they_bind_in_lance(
    world: World, first: str, rest: list[tuple[str, str]], negated: str
) -> None:
    agree(world, negated + first + "".join(glue + text for glue, text in rest), single=False)


WORDS = words("""
    i8 b s 1 -1 0.5 'a' TRUE NULL AND OR NOT IS IN BETWEEN LIKE ( ) , = < >= != <> + - * || :: bigint cast(
    as date `i8` . st.i abs( -- /* ; x LIMIT
""")


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), space=st.sampled_from([" ", "\n", "  ", ""]))
def test_what_is_broken_to_us_is_broken_to_lance(world: World, words: list[str], space: str) -> None:
    agree(world, space.join(words), single=False)
    agree(world, "i8 = 1 OR " + space.join(words), single=False)


def test_the_oracle_notices_a_wrong_tree(world: World) -> None:
    right = parse_filter("f64 < 0", world.columns)
    wrong = parse_filter("f64 <= 0", world.columns)
    assert world.rows(right) == world.scan("f64 < 0") != world.rows(wrong)
