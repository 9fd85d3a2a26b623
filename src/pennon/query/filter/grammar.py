"""The grammar of filters: text to syntax tree, with the precedences of Lance's own parser (sqlparser)."""

from __future__ import annotations

from pennon.query.filter.geometry import RELATIONS
from pennon.query.filter.literals import Literal, SqlType, number
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
from pennon.query.filter.tokens import Broken, NotUnderstood, Tokens, constant


def read(sql: str) -> Expression:
    """The syntax tree of a whole filter."""
    return _Reader(sql).read()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT, _UNARY = 15, 40
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PRECEDENCE = (
    {"OR": 5, "AND": 10, "IS": 17, "LIKE": 19, "ILIKE": 19, "IN": 20, "BETWEEN": 20}
    | dict.fromkeys(_COMPARISONS, 20)
    | {"+": 30, "-": 30, "*": 40, "/": 40, "%": 40, "||": 40}
)
_NEGATABLE = {"IN": 20, "BETWEEN": 20, "LIKE": 19, "ILIKE": 19, "NULL": 17}


_WORDS = {"TRUE": Literal("bool", True), "FALSE": Literal("bool", False), "NULL": Literal("null", None)}
_TYPED_STRINGS = _words("DATE TIMESTAMP DATETIME")
_TYPES = _words("date timestamp datetime double float decimal string tinyint smallint int integer bigint")
# Words that do not begin a column or a function call.
_RESERVED = _words(
    "ALL AND ANY ARRAY BETWEEN CASE COLLATE CONVERT CURRENT_CATALOG CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP "
    "CURRENT_USER ELSE END ESCAPE EXISTS FROM ILIKE IN INSERT INTERVAL IS LAMBDA LIKE LOCALTIME LOCALTIMESTAMP MAP "
    "MATCH OR PRIOR SELECT SESSION_USER SOME STRUCT TABLE THEN TRIM UPDATE VALUES WHEN WHERE WITH XOR"
)
# Words that SQL lets follow a literal, though this grammar does not.
_CONTINUATIONS = _words(
    "AS AT COLLATE DIV ESCAPE GLOB MATCH MEMBER NOT NOTNULL OPERATOR OVERLAPS REGEXP RLIKE SIMILAR XOR"
)
# Words that begin the next clause of a statement. Lance reads the filter up to there and ignores the rest.
_CLAUSES = _words(
    "CLUSTER CONNECT DISTRIBUTE EXCEPT FETCH FOR FORMAT GROUP HAVING INTERSECT INTO LATERAL LIMIT MINUS OFFSET ORDER "
    "PREWHERE QUALIFY SETTINGS SORT START UNION WINDOW"
)
# Functions that indices answer, with the canonical name of each alias.
_FUNCTIONS = {
    "STARTS_WITH": "starts_with",
    "CONTAINS": "contains",
    "REGEXP_LIKE": "regexp_like",
    "REGEXP_MATCH": "regexp_match",
    "ARRAY_HAS": "array_has",
    "ARRAY_CONTAINS": "array_has",
    "LIST_HAS": "array_has",
    "LIST_CONTAINS": "array_has",
    "ARRAY_HAS_ANY": "array_has_any",
    "ARRAY_HAS_ALL": "array_has_all",
    "ST_GEOMFROMTEXT": "st_geomfromtext",
} | {name.upper(): name for name in RELATIONS}
_MAX_DEPTH = 48  # Lance refuses deeper nesting than about this.


class _Reader(Tokens):
    """A precedence-climbing parser."""

    depth = 0

    def read(self) -> Expression:
        expression = self.expression(0)
        if self.kind == "end":
            return expression
        if self.text == ")":
            raise Broken("this ')' has no matching '('", self.start)
        if self.kind == "word" and self.text.upper() in _CLAUSES:
            raise Broken(f"{self.text!r} follows the filter", self.start)
        past_value = self.past_kind in ("number", "string", "binary") or self.sql[self.past_end - 1] == ")"
        if past_value and self.kind == "word" and self.text.upper() not in _CONTINUATIONS:
            # Lance would read the filter up to here and silently ignore the rest.
            raise Broken(f"there should be an operator before {self.text!r}", self.start)
        raise NotUnderstood

    def expression(self, precedence: int) -> Expression:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise NotUnderstood
        left = self.prefix()
        while self.text == "::":
            left = self.cast(left)
        while self.kind in ("word", "sign"):
            operator = self.text.upper()
            negated = operator == "NOT"
            if negated:
                operator = self.following_word()
            binds = (_NEGATABLE if negated else _PRECEDENCE).get(operator, 0)
            if binds <= precedence:
                break
            if negated:
                self.advance()
            self.advance()
            left = self.infix(left, operator, negated, binds)
        self.depth -= 1
        return left

    def prefix(self) -> Expression:
        kind, text, start = self.kind, self.text, self.start
        if kind == "word":
            return self.prefix_word(text.upper())
        if kind == "quoted":
            return self.name()
        if kind == "end":
            raise Broken("an expression is missing at the end", start)
        if text in ("[", "]"):
            raise NotUnderstood
        if kind == "sign" and text not in "(-+":
            raise Broken(f"there should be an expression instead of {text!r}", start)
        self.advance()
        if text == "(":
            inner = self.expression(0)
            self.take(")")
            inner.start, inner.end = start, self.past_end
            return inner
        if kind == "sign":
            return self.signed(text, start)
        return Constant(constant(kind, text), start=start, end=self.past_end)

    def prefix_word(self, word: str) -> Expression:
        start = self.start
        if word in _RESERVED:
            raise NotUnderstood
        if word in _WORDS:
            self.advance()
            return Constant(_WORDS[word], start=start, end=self.past_end)
        if word == "NOT":
            self.advance()
            operand = self.expression(_NOT)
            return Not(operand, start=start, end=operand.end)
        name = self.name()
        if len(name.parts) == 1 and self.text == "(":
            return self.call(word, start)
        if len(name.parts) == 1 and self.kind == "string" and word in _TYPED_STRINGS:
            literal = Literal("cast", constant("string", self.text), SqlType(word.lower()))
            self.advance()
            return Constant(literal, start=start, end=self.past_end)
        return name

    def name(self) -> Name:
        start, verbatim, parts = self.start, self.kind == "quoted", list[str]()
        while self.kind in ("word", "quoted"):
            parts.append(self.text if self.kind == "word" else self.text[1:-1].replace("``", "`"))
            self.advance()
            if self.text != ".":
                return Name(parts, verbatim and len(parts) == 1, start=start, end=self.past_end)
            self.advance()
        raise NotUnderstood

    def signed(self, sign: str, start: int) -> Expression:
        digits = self.text if self.kind == "number" and sign == "-" else ""
        first, last = self.start, self.end
        operand = self.expression(_UNARY)
        if digits and isinstance(operand, Constant) and (operand.start, operand.end) == (first, last):
            return Constant(number(digits, negative=True), start=start, end=last)
        return Expression(start=start, end=operand.end)

    def call(self, function: str, start: int) -> Expression:
        self.advance()
        if function == "CAST":
            inner = self.expression(0)
            self.take("AS")
            type_ = self.sql_type()
            if type_ and self.text == ")" and isinstance(inner, Constant):
                self.advance()
                return Constant(Literal("cast", inner.literal, type_), start=start, end=self.past_end)
        elif function in _FUNCTIONS:
            first, depth = self.start, self.depth
            try:
                arguments = self.arguments()
                return Call(_FUNCTIONS[function], arguments, start=start, end=self.past_end)
            except NotUnderstood:
                self.depth = depth
                self.go_back(first)
        unclosed = 1
        while unclosed:  # The arguments end at the matching parenthesis.
            if self.kind == "end":
                raise Broken("')' is missing at the end", self.start)
            unclosed += (self.text == "(") - (self.text == ")")
            self.advance()
        return Expression(start=start, end=self.past_end)

    def arguments(self) -> list[Expression]:
        """The arguments after an opening parenthesis."""
        found: list[Expression] = []
        while self.text != ")":
            found.append(self.items() if self.text == "[" else self.expression(0))
            if self.text != ")":
                self.take(",")
                if self.text == ")":
                    raise NotUnderstood
        self.advance()
        return found

    def items(self) -> Expression:
        start, literals = self.start, list[Literal]()
        self.advance()
        while self.text != "]":
            item = self.expression(0)
            if not isinstance(item, Constant):
                raise NotUnderstood
            literals.append(item.literal)
            if self.text != "]":
                self.take(",")
                if self.text == "]":
                    raise NotUnderstood
        self.advance()
        return Items(literals, start=start, end=self.past_end)

    def cast(self, operand: Expression) -> Expression:
        self.advance()
        type_ = self.sql_type()
        if type_ is None:
            raise NotUnderstood
        if isinstance(operand, Constant):
            return Constant(Literal("cast", operand.literal, type_), start=operand.start, end=self.past_end)
        return Expression(start=operand.start, end=self.past_end)

    def sql_type(self) -> SqlType | None:
        name, arguments = self.text.lower(), list[int]()
        if name not in _TYPES:
            return None
        self.advance()
        while self.text == ("," if arguments else "("):
            self.advance()
            if self.kind != "number" or not self.text.isdigit():
                raise NotUnderstood
            arguments.append(int(self.text))
            self.advance()
        if arguments:
            self.take(")")
        return SqlType(name, tuple(arguments))

    def infix(self, left: Expression, operator: str, negated: bool, binds: int) -> Expression:
        if operator == "NULL":
            return Is(left, "NULL", negated, start=left.start, end=self.past_end)
        if operator == "IS":
            return self.test(left)
        if operator == "IN":
            return self.membership(left, negated)
        right = self.expression(binds)
        if operator in _COMPARISONS:
            return Comparison(_COMPARISONS[operator], left, right, start=left.start, end=right.end)
        if operator == "BETWEEN":
            self.take("AND")
            high = self.expression(binds)
            return Between(left, right, high, negated, start=left.start, end=high.end)
        if operator in ("LIKE", "ILIKE"):
            return self.like(left, right, operator, negated)
        if operator not in ("AND", "OR"):
            return Expression(start=left.start, end=right.end)
        if isinstance(left, Logic) and left.operator == operator:
            left.operands.append(right)
            left.end = right.end
            return left
        return Logic(operator, [left, right], start=left.start, end=right.end)

    def test(self, operand: Expression) -> Expression:
        negated = self.text.upper() == "NOT"
        if negated:
            self.advance()
        what = self.text.upper()
        if what not in _WORDS:
            raise NotUnderstood
        self.advance()
        return Is(operand, what, negated, start=operand.start, end=self.past_end)

    def like(self, operand: Expression, pattern: Expression, operator: str, negated: bool) -> Expression:
        if self.text.upper() == "ESCAPE":
            self.advance()
            if self.kind != "string":
                raise NotUnderstood
            self.advance()
        else:
            return Like(operand, pattern, negated, operator == "ILIKE", start=operand.start, end=pattern.end)
        return Expression(start=operand.start, end=self.past_end)

    def membership(self, operand: Expression, negated: bool) -> Expression:
        if self.text != "(":
            raise NotUnderstood
        literals = self.plain_list()
        if literals is None:
            items: list[Expression] = []
            while self.text == ("," if items else "("):
                self.advance()
                items.append(self.expression(0))
            self.take(")")
            literals = [item.literal for item in items if isinstance(item, Constant)]
            if len(literals) < len(items):
                return Expression(start=operand.start, end=self.past_end)
        return In(operand, literals, negated, start=operand.start, end=self.past_end)
