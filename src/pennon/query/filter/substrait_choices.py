"""Choices between values (if_else, case_when) turned into choices between conditions, the only ones SQL filters have.

`f(if c then a else b)` is the same as `if c then f(a) else f(b)` for any `f`.
"""

from __future__ import annotations

from collections.abc import Collection

from pennon.format.pb import substrait_pb2 as pb


def outermost_choices(expression: pb.Expression, connectives: Collection[int]) -> pb.Expression:
    """An equivalent expression in which choices are operands only of choices and of AND, OR and NOT.

    Args:
        expression: any condition.
        connectives: the function references of AND, OR and NOT.
    """
    result = pb.Expression()
    result.CopyFrom(expression)
    operands = _operands(result)
    for operand in operands:
        operand.CopyFrom(outermost_choices(operand, connectives))
    kind = result.WhichOneof("rex_type")
    if kind == "if_then" or (kind == "scalar_function" and result.scalar_function.function_reference in connectives):
        return result
    for operand in operands:
        if operand.WhichOneof("rex_type") == "if_then":
            choice = pb.IfThen()
            choice.CopyFrom(operand.if_then)
            if not choice.HasField("else"):
                getattr(choice, "else").literal.null.SetInParent()
            for branch in [*(clause.then for clause in choice.ifs), getattr(choice, "else")]:
                operand.CopyFrom(branch)
                branch.CopyFrom(outermost_choices(result, connectives))
            return pb.Expression(if_then=choice)
    return result


def _operands(expression: pb.Expression) -> list[pb.Expression]:
    match expression.WhichOneof("rex_type"):
        case "scalar_function":
            return [argument.value for argument in expression.scalar_function.arguments]
        case "if_then":
            choice = expression.if_then
            operands = [operand for clause in choice.ifs for operand in (getattr(clause, "if"), clause.then)]
            return [*operands, getattr(choice, "else")] if choice.HasField("else") else operands
        case "singular_or_list":
            return [expression.singular_or_list.value]
        case "cast":
            return [expression.cast.input]
        case _:
            return []
