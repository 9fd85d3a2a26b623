"""Parses a filter of Lance's scanner into conditions that indices can answer and conditions that only a scan can.

The tree is true for exactly the rows a full scan with the same text returns. A condition for which this module cannot
guarantee that becomes `Opaque`, at worst the whole filter; an error is raised only for text that is not a filter or
that uses a column that the table does not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from pennon.errors import InvalidFilter
from pennon.index.conditions import ColumnRanges, ContainsText, HasLabels, MeetsBox
from pennon.index.key_spans import Order, Span, Spans, beyond, order_of, union
from pennon.query.filter.columns import Columns
from pennon.query.filter.geometry import RELATIONS, box_of_text
from pennon.query.filter.grammar import read
from pennon.query.filter.in_list_merging import InListMerging
from pennon.query.filter.literals import Literal, Place, locate
from pennon.query.filter.predicate import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    Node,
    Opaque,
    conjunction,
    disjunction,
)
from pennon.query.filter.syntax import (
    Between,
    Call,
    Comparison,
    Constant,
    Expression,
    In,
    Is,
    Items,
    Like,
    Logic,
    Name,
    Not,
)
from pennon.query.filter.text_pieces import like_pieces, regex_pieces
from pennon.query.filter.tokens import Broken, NotUnderstood

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def parse_filter(sql: str, columns: Mapping[str, pa.DataType], syntax: Expression | None = None) -> Node:
    """The tree of a filter.

    The keys of `columns` are column paths: `user_id`, or `a.b` for a field of a struct. `syntax` is what `read` has
    returned for the same text, if it was called before.
    """
    if not sql.strip():
        raise InvalidFilter("the filter is empty", 'Leave it out, or write "true", to select every row')
    try:
        expression = syntax or read(sql)
    except NotUnderstood:
        return Opaque(sql)
    except Broken as error:
        raise error.explained(sql) from None
    return _Binder(sql, columns).bind_filter(expression)


class _Binder:
    """Binds a syntax tree to the columns of one table.

    `negated`: an odd number of NOTs is above. `adopted`: only AND and OR are above, so that Lance converts literals to
    the column's type (see `pennon.query.filter.literals`).
    """

    def __init__(self, sql: str, columns: Mapping[str, pa.DataType]) -> None:
        self.sql = sql
        self.columns = Columns(columns)
        self.in_lists = InListMerging(sql, self.columns)

    def bind_filter(self, expression: Expression) -> Node:
        conditions = (
            expression.operands if isinstance(expression, Logic) and expression.operator == "AND" else [expression]
        )
        if self.in_lists.affects_filter(conditions):
            return Opaque(self.sql)
        return conjunction(
            self.opaque(condition, negated=False, adopted=True)
            if self.in_lists.affects(condition)
            else self.bind(condition, negated=False, adopted=True)
            for condition in conditions
        )

    def bind(self, expression: Expression, negated: bool, adopted: bool) -> Node:
        if isinstance(expression, Not):
            return self.bind(expression.operand, not negated, adopted=False)
        if isinstance(expression, Logic):
            join = conjunction if (expression.operator == "AND") != negated else disjunction
            return join([self.bind(operand, negated, adopted) for operand in expression.operands])
        node = self.atom(expression, negated, adopted)
        return node if node is not None else self.opaque(expression, negated, adopted)

    def opaque(self, expression: Expression, negated: bool, adopted: bool) -> Node:
        text = self.sql[expression.start : expression.end]
        if negated:
            return Opaque(f"NOT ({text})")
        return Opaque(text if adopted else f"NOT (NOT ({text}))")

    def atom(self, expression: Expression, negated: bool, adopted: bool) -> Node | None:
        """The node of a condition without nested conditions; None if only a scan can evaluate it."""
        match expression:
            case Constant(literal=Literal(kind="bool" | "null", value=value)):
                return ALWAYS_TRUE if value is (not negated) else ALWAYS_FALSE
            case Name():
                return self.boolean(expression, negated)
            case Comparison(operator=operator, left=Name() as name, right=Constant(literal=literal)):
                return self.comparison(name, operator, literal, negated, adopted)
            case Comparison(operator=operator, left=Constant(literal=literal), right=Name() as name):
                return self.comparison(name, _MIRRORED[operator], literal, negated, adopted)
            case Between(operand=Name() as name, low=Constant(literal=low), high=Constant(literal=high)):
                negated = negated != expression.negated
                ends = (
                    self.comparison(name, ">=", low, negated, adopted),
                    self.comparison(name, "<=", high, negated, adopted),
                )
                join = disjunction if negated else conjunction
                return None if None in ends else join(end for end in ends if end is not None)
            case In(operand=Name() as name):
                return self.membership(name, expression.literals, negated != expression.negated, adopted)
            case Is(operand=Call(function="regexp_match", arguments=arguments), what="NULL"):
                return self.matching(arguments) if expression.negated != negated else None
            case Is(operand=Name() as name):
                return self.test(name, expression.what, negated != expression.negated)
            case Like(operand=Name() as name, pattern=Constant(literal=literal)):
                return self.like(name, literal, negated != expression.negated, expression.any_case)
            case Call(function=function, arguments=arguments):
                return self.call(function, arguments, negated)
            case _:
                return None

    def comparison(self, name: Name, operator: str, literal: Literal, negated: bool, adopted: bool) -> Node | None:
        column = self.columns.find(name)
        if column is None:
            return None
        if literal.kind == "null":
            return ALWAYS_FALSE
        path, order = column
        place = locate(literal, order, adopted)
        spans = place and _compared(order, _OPPOSITE[operator] if negated else operator, place)
        return None if place is None or spans is None else ColumnRanges(path, order.type, spans, exact=place.exact)

    def membership(self, name: Name, literals: list[Literal], negated: bool, adopted: bool) -> Node | None:
        column = self.columns.find(name)
        if column is None:
            return None
        path, order = column
        adopted = adopted and len(name.parts) == 1  # Lance leaves IN on a struct's field to DataFusion.
        places = [locate(literal, order, adopted) for literal in literals if literal.kind != "null"]
        exact = all(place is not None and place.exact for place in places)
        if None in places or (negated and not exact):
            return None
        if negated and len(places) < len(literals):
            return ALWAYS_FALSE
        spans = union(order.between(place.low, place.high) for place in places if place is not None)
        return ColumnRanges(path, order.type, order.complement(spans) if negated else spans, exact=exact)

    def boolean(self, name: Name, negated: bool) -> Node | None:
        column = self.columns.find(name)
        if column is None or column[1].family != "bool":
            return None
        path, order = column
        return ColumnRanges(path, order.type, (order.between(int(not negated), int(not negated)),))

    def test(self, name: Name, what: str, negated: bool) -> Node | None:
        column = self.columns.find(name)
        if column is None:
            return None
        path, order = column
        if what == "NULL":
            return ColumnRanges(path, order.type, order.everything if negated else (), nulls=not negated)
        if order.family != "bool":
            return None
        value = int((what == "TRUE") != negated)
        return ColumnRanges(path, order.type, (order.between(value, value),), nulls=negated)

    def like(self, name: Name, pattern: Literal, negated: bool, any_case: bool) -> Node | None:
        if pattern.kind != "string":
            return None
        prefix = re.split(r"[%_\\]", pattern.value, maxsplit=1)[0]
        rest = pattern.value[len(prefix) :]
        if not any_case and not rest:
            return self.comparison(name, "=", pattern, negated, adopted=False)
        if not any_case and not rest.strip("%"):
            return self.starting_with(name, prefix, negated)
        if negated:
            return None
        column = self.columns.find(name)
        alone = not any_case and re.fullmatch(r"%+[^%_\\]+%+", pattern.value) is not None
        held = column and self.containing(column[0], column[1].type, like_pieces(pattern.value), any_case, exact=alone)
        start = self.starting_with(name, prefix, negated, exact=False) if prefix and not any_case else None
        parts = [node for node in (start, held) if node is not None]
        return conjunction(parts) if parts else None

    def call(self, function: str, arguments: list[Expression], negated: bool) -> Node | None:
        match function, arguments:
            case "starts_with", [Name() as name, Constant(literal=Literal(kind="string", value=prefix))]:
                return self.starting_with(name, prefix, negated)
            case "contains", [Name() as name, Constant(literal=Literal(kind="string", value=text))] if not negated:
                column = self.columns.exactly(name)
                return column and self.containing(*column, (text,), any_case=False, exact=True)
            case "regexp_like", _ if not negated:
                return self.matching(arguments)
            case "array_has", [Name() as name, Constant(literal=literal)] if literal.kind != "null":
                return self.labels(name, [literal], every=False, negated=negated)
            case (("array_has_any" | "array_has_all"), [Name() as name, Items(literals=literals)]) if literals:
                return self.labels(name, literals, function == "array_has_all", negated)
            case _, ([Name() as name, Call() as other] | [Call() as other, Name() as name]) if not negated:
                return self.related(function, name, other)
            case _:
                return None

    def matching(self, arguments: list[Expression]) -> Node | None:
        """The pieces that every text matching a regular expression contains."""
        match arguments:
            case [Name() as name, Constant(literal=Literal(kind="string", value=pattern))]:
                any_case = False
            case [
                Name() as name,
                Constant(literal=Literal(kind="string", value=pattern)),
                Constant(literal=Literal(kind="string", value="i")),
            ]:
                any_case = True
            case _:
                return None
        column, pieces = self.columns.exactly(name), regex_pieces(pattern)
        return column and self.containing(*column, pieces, any_case, exact=False)

    def containing(
        self, path: str, type_: pa.DataType, pieces: tuple[str, ...], any_case: bool, exact: bool
    ) -> Node | None:
        if not any(pieces) or order_of(type_).family != "string" or not all(map(_is_encodable, pieces)):
            return None
        return ContainsText(path, type_, pieces, any_case, exact)

    def labels(self, name: Name, literals: list[Literal], every: bool, negated: bool) -> Node | None:
        column = self.columns.exactly(name)
        if column is None or not (pa.types.is_list(column[1]) or pa.types.is_large_list(column[1])):
            return None
        path, type_ = column
        order = order_of(type_.value_type)
        known = {"string": "string", "int": "int", "bool": "bool"}.get(order.family)
        if any(literal.kind not in (known, "null") for literal in literals) or pa.types.is_uint64(type_.value_type):
            return None  # DataFusion would convert the lists first, or refuse to
        places = [locate(literal, order, adopted=False) for literal in literals if literal.kind != "null"]
        if None in places:
            return None
        values = iter(order.scalars([place.low for place in places if place is not None]))
        labels = tuple(None if literal.kind == "null" else next(values) for literal in literals)
        return HasLabels(path, type_, labels, every, negated)

    def related(self, function: str, name: Name, other: Call) -> Node | None:
        """Geometries related to a constant one, which have a point in its box."""
        column = self.columns.exactly(name)
        match function in RELATIONS, other.function, other.arguments:
            case True, "st_geomfromtext", [Constant(literal=Literal(kind="string", value=text))] if column:
                box = box_of_text(text)
                return MeetsBox(*column, *box) if box is not None else None
            case _:
                return None

    def starting_with(self, name: Name, prefix: str, negated: bool, exact: bool = True) -> Node | None:
        column = self.columns.find(name)
        if column is None or column[1].family != "string" or not _is_encodable(prefix):
            return None
        path, order = column
        end = beyond(prefix)
        spans: Spans = ((order.below(prefix.encode()), order.below(end.encode()) if end else order.last),)
        return ColumnRanges(path, order.type, order.complement(spans) if negated else spans, exact=exact)


def _compared(order: Order, operator: str, place: Place) -> Spans | None:
    """The values for which `value operator literal` is true; a superset if the literal's position is not exact."""
    if operator in ("=", "!="):
        spans = (order.between(place.low, place.high),)
        if operator == "=":
            return spans
        return order.complement(spans) if place.exact else None
    strict = operator in ("<", ">") and place.exact
    if operator in ("<", "<="):
        span: Span = (order.first, order.below(place.low) if strict else order.above(place.high))
    else:
        span = (order.above(place.high) if strict else order.below(place.low), order.last)
    return union([span])


def _is_encodable(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)
