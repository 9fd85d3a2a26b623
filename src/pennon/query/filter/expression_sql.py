"""A pyarrow compute expression as the SQL text of a filter, with the meaning that it has in pylance.

Expressions have no public tree, so they are read from their Substrait form, which pylance evaluates too. pyarrow binds
them to the schema first: if it would convert a column for a comparison, it refuses to serialize the expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from pyarrow.substrait import serialize_expressions

from pennon.errors import InvalidFilter
from pennon.format.pb import substrait_pb2 as pb
from pennon.query.filter.substrait_choices import outermost_choices
from pennon.query.filter.substrait_literals import (
    NotInSql,
    is_utc,
    is_value_of,
    plain_literal,
    sql_type,
    typed_literal,
)
from pennon.wording import did_you_mean, sql_identifier

# pyarrow takes twice as long for every level: 0.1 s for 14, 2 s for 18.
_MAX_DEPTH = 18
_COMPARISONS = {"equal": "=", "not_equal": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_LOGIC = {"and": "AND", "or": "OR"}
_TESTS = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL"}
_RENAMED = {"is_nan": "isnan"}
# Functions with the same name in Substrait and in Lance's SQL.
_FUNCTIONS = frozenset(("starts_with", "ends_with", "contains", "coalesce", "abs", "exp", "power", "sqrt")) | frozenset(
    ("acos", "asin", "atan", "atan2", "cos", "sin", "tan")
)


def expression_sql(expression: pc.Expression, schema: pa.Schema) -> str:
    """The filter that selects the rows for which an expression over the columns of a table is true.

    Args:
        expression: a combination of `pyarrow.compute.field` and `pyarrow.compute.scalar`.
        schema: the table's columns. Those of types that Substrait lacks cannot be part of the expression.

    Raises:
        InvalidFilter: the expression does not fit the schema, or it has no form in Substrait or in Lance's SQL.
    """
    if _depth(str(expression)) > _MAX_DEPTH:
        raise InvalidFilter(
            f"an expression is nested more than {_MAX_DEPTH} deep, for which pyarrow needs minutes",
            "Use isin for many values of a column, or write the filter as SQL text",
        )
    described = pa.schema([_replaced(position, field) for position, field in enumerate(schema)])
    try:
        content = bytes(serialize_expressions([expression], ["filter"], described))
        message = pb.ExtendedExpression.FromString(content)
        return _Translator(message, described).filter(message.referred_expr[0].expression)
    except (pa.ArrowException, DecodeError, NotInSql) as error:
        reason = str(error).partition("\n")[0]
        column = re.match(r"No match for FieldRef\.Name\((.+?)\) in ", reason)
        if column and column[1] not in schema.names:
            raise InvalidFilter(
                f"the expression {expression} names a column that the table does not have: {column[1]}",
                did_you_mean(column[1], schema.names),
            ) from error
        if column:
            reason = f"Substrait has no type for column {column[1]}, which has type {schema.field(column[1]).type}"
        raise InvalidFilter(
            f"the expression {expression} cannot be evaluated: {reason}",
            "Write the filter as SQL text: \"user_id = 42 AND name LIKE 'a%'\"",
        ) from error


class _Translator:
    """SQL for the expressions of one message."""

    def __init__(self, message: pb.ExtendedExpression, schema: pa.Schema) -> None:
        declared = (extension.extension_function for extension in message.extensions)
        self.functions = {function.anchor: function.name for function in declared if function.name}
        self.schema = schema

    def filter(self, expression: pb.Expression) -> str:
        connectives = {anchor for anchor, name in self.functions.items() if name in ("and", "or", "not")}
        return self.translate(outermost_choices(expression, connectives))

    def translate(self, expression: pb.Expression) -> str:
        match expression.WhichOneof("rex_type"):
            case "literal":
                return typed_literal(expression.literal)
            case "selection":
                return self.column(expression.selection)[0]
            case "scalar_function":
                return self.function(expression.scalar_function)
            case "if_then":
                return self.choice(expression.if_then)
            case "singular_or_list":
                return self.membership(expression.singular_or_list)
            case "cast":
                cast = expression.cast
                return f"cast({self.translate(cast.input)} as {sql_type(cast.type)})"
            case _:
                raise NotInSql("an expression of an unknown kind")

    def column(self, reference: pb.FieldReference) -> tuple[str, pa.DataType]:
        """The path of a column, quoted, and its type."""
        parts: list[str] = []
        fields: Any = self.schema
        segment = reference.direct_reference
        while True:
            if not segment.HasField("struct_field"):
                raise NotInSql("it refers to an item of a list or of a map")
            field = fields.field(segment.struct_field.field)
            parts.append(sql_identifier(field.name))
            if not segment.struct_field.HasField("child"):
                return ".".join(parts), field.type
            segment, fields = segment.struct_field.child, field.type

    def function(self, call: pb.ScalarFunction) -> str:
        name = self.functions.get(call.function_reference, "")
        if any("CASE_INSENSITIVE" in option.preference for option in call.options):
            raise NotInSql(f"Lance evaluates {name} only case-sensitively")
        values = [argument.value for argument in call.arguments]
        if name in _COMPARISONS:
            left, right = values
            return f"({self.compared(left, right)} {_COMPARISONS[name]} {self.compared(right, left)})"
        if name in _LOGIC:
            return f"({f' {_LOGIC[name]} '.join(self.chain(name, values))})"
        arguments = [self.translate(value) for value in values]
        if name in _ARITHMETIC:
            return f"({f' {_ARITHMETIC[name]} '.join(arguments)})"
        if name in _TESTS:
            return f"({arguments[0]} {_TESTS[name]})"
        if name == "not":
            return f"(NOT {arguments[0]})"
        if name == "negate":
            return f"(- {arguments[0]})"
        if name in _FUNCTIONS or name in _RENAMED:
            return f"{_RENAMED.get(name, name)}({', '.join(arguments)})"
        raise NotInSql(f"the SQL of filters has no function for {name!r}")

    def compared(self, value: pb.Expression, other: pb.Expression) -> str:
        """One side of a comparison. pyarrow gave both sides one type, which a plain number then has too."""
        if value.WhichOneof("rex_type") != "literal":
            return self.translate(value)
        type_ = self.column_type(other)
        return plain_literal(value.literal, utc=type_ is not None and is_utc(type_))

    def column_type(self, expression: pb.Expression) -> pa.DataType | None:
        """The type of a column; None if the expression is anything else."""
        return self.column(expression.selection)[1] if expression.WhichOneof("rex_type") == "selection" else None

    def chain(self, name: str, values: Sequence[pb.Expression]) -> list[str]:
        """The operands of nested ANDs, or ORs, as one flat chain: Lance limits the depth of parentheses."""
        texts: list[str] = []
        for value in values:
            call = value.scalar_function
            same = value.WhichOneof("rex_type") == "scalar_function"
            if same and self.functions.get(call.function_reference) == name:
                texts += self.chain(name, [argument.value for argument in call.arguments])
            else:
                texts.append(self.translate(value))
        return texts

    def choice(self, choice: pb.IfThen) -> str:
        """A choice between conditions. Lance's SQL has no CASE, but a function that DataFusion turns into one."""
        text = self.translate(getattr(choice, "else")) if choice.HasField("else") else "NULL"
        for clause in reversed(choice.ifs):
            condition = self.translate(getattr(clause, "if"))
            text = f"nvl2(nullif({condition}, FALSE), {self.translate(clause.then)}, {text})"
        return text

    def membership(self, test: pb.SingularOrList) -> str:
        if not test.options:
            return "FALSE"
        if any(option.WhichOneof("rex_type") != "literal" for option in test.options):
            raise NotInSql("a set of values has members that are not literals")
        literals = [option.literal for option in test.options]
        operand, type_ = self.translate(test.value), self.column_type(test.value)
        if type_ is not None and all(is_value_of(literal, type_) for literal in literals):
            return f"({operand} IN ({', '.join(plain_literal(each, utc=is_utc(type_)) for each in literals)}))"
        # Lance would convert the values to the column's type. Below a NOT, DataFusion uses a common type, as it does
        # for pylance.
        return f"(NOT (NOT ({operand} IN ({', '.join(map(typed_literal, literals))}))))"


def _depth(shown: str) -> int:
    """The depth of nested parentheses of an expression, without those in its strings."""
    depth = deepest = 0
    for sign in re.findall(r'"(?:[^"\\]|\\.)*"|[()]', shown):
        depth += (sign == "(") - (sign == ")")
        deepest = max(deepest, depth)
    return deepest


def _replaced(position: int, field: pa.Field) -> pa.Field:
    """A column as Substrait can describe it. References are positions, so a column that it cannot describe is replaced
    by one with an unused name."""
    return field if _is_describable(field.type) else pa.field(f"\0{position}", pa.int8())


def _is_describable(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        return False
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return all(field.metadata is None and _is_describable(field.type) for field in fields)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _is_describable(type_.value_type)
    return any(is_such(type_) for is_such in _DESCRIBABLE)


_DESCRIBABLE = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)
