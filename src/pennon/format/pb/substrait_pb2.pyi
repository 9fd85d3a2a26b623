from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExtendedExpression(_message.Message):
    __slots__ = ("extensions", "referred_expr")
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    REFERRED_EXPR_FIELD_NUMBER: _ClassVar[int]
    extensions: _containers.RepeatedCompositeFieldContainer[Declaration]
    referred_expr: _containers.RepeatedCompositeFieldContainer[ExpressionReference]
    def __init__(self, extensions: _Optional[_Iterable[_Union[Declaration, _Mapping]]] = ..., referred_expr: _Optional[_Iterable[_Union[ExpressionReference, _Mapping]]] = ...) -> None: ...

class Declaration(_message.Message):
    __slots__ = ("extension_function",)
    class ExtensionFunction(_message.Message):
        __slots__ = ("anchor", "name")
        ANCHOR_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        anchor: int
        name: str
        def __init__(self, anchor: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...
    EXTENSION_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    extension_function: Declaration.ExtensionFunction
    def __init__(self, extension_function: _Optional[_Union[Declaration.ExtensionFunction, _Mapping]] = ...) -> None: ...

class ExpressionReference(_message.Message):
    __slots__ = ("expression",)
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    expression: Expression
    def __init__(self, expression: _Optional[_Union[Expression, _Mapping]] = ...) -> None: ...

class Expression(_message.Message):
    __slots__ = ("literal", "selection", "scalar_function", "if_then", "singular_or_list", "cast")
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    IF_THEN_FIELD_NUMBER: _ClassVar[int]
    SINGULAR_OR_LIST_FIELD_NUMBER: _ClassVar[int]
    CAST_FIELD_NUMBER: _ClassVar[int]
    literal: Literal
    selection: FieldReference
    scalar_function: ScalarFunction
    if_then: IfThen
    singular_or_list: SingularOrList
    cast: Cast
    def __init__(self, literal: _Optional[_Union[Literal, _Mapping]] = ..., selection: _Optional[_Union[FieldReference, _Mapping]] = ..., scalar_function: _Optional[_Union[ScalarFunction, _Mapping]] = ..., if_then: _Optional[_Union[IfThen, _Mapping]] = ..., singular_or_list: _Optional[_Union[SingularOrList, _Mapping]] = ..., cast: _Optional[_Union[Cast, _Mapping]] = ...) -> None: ...

class Literal(_message.Message):
    __slots__ = ("boolean", "i8", "i16", "i32", "i64", "fp32", "fp64", "string", "binary", "timestamp", "date", "fixed_binary", "decimal", "timestamp_tz", "null", "user_defined")
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    I8_FIELD_NUMBER: _ClassVar[int]
    I16_FIELD_NUMBER: _ClassVar[int]
    I32_FIELD_NUMBER: _ClassVar[int]
    I64_FIELD_NUMBER: _ClassVar[int]
    FP32_FIELD_NUMBER: _ClassVar[int]
    FP64_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    FIXED_BINARY_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_TZ_FIELD_NUMBER: _ClassVar[int]
    NULL_FIELD_NUMBER: _ClassVar[int]
    USER_DEFINED_FIELD_NUMBER: _ClassVar[int]
    boolean: bool
    i8: int
    i16: int
    i32: int
    i64: int
    fp32: float
    fp64: float
    string: str
    binary: bytes
    timestamp: int
    date: int
    fixed_binary: bytes
    decimal: Decimal
    timestamp_tz: int
    null: Type
    user_defined: UserDefined
    def __init__(self, boolean: _Optional[bool] = ..., i8: _Optional[int] = ..., i16: _Optional[int] = ..., i32: _Optional[int] = ..., i64: _Optional[int] = ..., fp32: _Optional[float] = ..., fp64: _Optional[float] = ..., string: _Optional[str] = ..., binary: _Optional[bytes] = ..., timestamp: _Optional[int] = ..., date: _Optional[int] = ..., fixed_binary: _Optional[bytes] = ..., decimal: _Optional[_Union[Decimal, _Mapping]] = ..., timestamp_tz: _Optional[int] = ..., null: _Optional[_Union[Type, _Mapping]] = ..., user_defined: _Optional[_Union[UserDefined, _Mapping]] = ...) -> None: ...

class Decimal(_message.Message):
    __slots__ = ("value", "precision", "scale")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    precision: int
    scale: int
    def __init__(self, value: _Optional[bytes] = ..., precision: _Optional[int] = ..., scale: _Optional[int] = ...) -> None: ...

class UserDefined(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: Wrapped
    def __init__(self, value: _Optional[_Union[Wrapped, _Mapping]] = ...) -> None: ...

class Wrapped(_message.Message):
    __slots__ = ("type_url", "value")
    TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type_url: str
    value: bytes
    def __init__(self, type_url: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class FieldReference(_message.Message):
    __slots__ = ("direct_reference",)
    DIRECT_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    direct_reference: ReferenceSegment
    def __init__(self, direct_reference: _Optional[_Union[ReferenceSegment, _Mapping]] = ...) -> None: ...

class ReferenceSegment(_message.Message):
    __slots__ = ("struct_field",)
    STRUCT_FIELD_FIELD_NUMBER: _ClassVar[int]
    struct_field: StructField
    def __init__(self, struct_field: _Optional[_Union[StructField, _Mapping]] = ...) -> None: ...

class StructField(_message.Message):
    __slots__ = ("field", "child")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    field: int
    child: ReferenceSegment
    def __init__(self, field: _Optional[int] = ..., child: _Optional[_Union[ReferenceSegment, _Mapping]] = ...) -> None: ...

class ScalarFunction(_message.Message):
    __slots__ = ("function_reference", "arguments", "options")
    FUNCTION_REFERENCE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    function_reference: int
    arguments: _containers.RepeatedCompositeFieldContainer[FunctionArgument]
    options: _containers.RepeatedCompositeFieldContainer[FunctionOption]
    def __init__(self, function_reference: _Optional[int] = ..., arguments: _Optional[_Iterable[_Union[FunctionArgument, _Mapping]]] = ..., options: _Optional[_Iterable[_Union[FunctionOption, _Mapping]]] = ...) -> None: ...

class FunctionArgument(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: Expression
    def __init__(self, value: _Optional[_Union[Expression, _Mapping]] = ...) -> None: ...

class FunctionOption(_message.Message):
    __slots__ = ("name", "preference")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREFERENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    preference: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., preference: _Optional[_Iterable[str]] = ...) -> None: ...

class IfThen(_message.Message):
    __slots__ = ("ifs",)
    class IfClause(_message.Message):
        __slots__ = ("then",)
        IF_FIELD_NUMBER: _ClassVar[int]
        THEN_FIELD_NUMBER: _ClassVar[int]
        then: Expression
        def __init__(self, then: _Optional[_Union[Expression, _Mapping]] = ..., **kwargs) -> None: ...
    IFS_FIELD_NUMBER: _ClassVar[int]
    ELSE_FIELD_NUMBER: _ClassVar[int]
    ifs: _containers.RepeatedCompositeFieldContainer[IfThen.IfClause]
    def __init__(self, ifs: _Optional[_Iterable[_Union[IfThen.IfClause, _Mapping]]] = ..., **kwargs) -> None: ...

class SingularOrList(_message.Message):
    __slots__ = ("value", "options")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    value: Expression
    options: _containers.RepeatedCompositeFieldContainer[Expression]
    def __init__(self, value: _Optional[_Union[Expression, _Mapping]] = ..., options: _Optional[_Iterable[_Union[Expression, _Mapping]]] = ...) -> None: ...

class Cast(_message.Message):
    __slots__ = ("type", "input")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    type: Type
    input: Expression
    def __init__(self, type: _Optional[_Union[Type, _Mapping]] = ..., input: _Optional[_Union[Expression, _Mapping]] = ...) -> None: ...

class Type(_message.Message):
    __slots__ = ("bool", "i8", "i16", "i32", "i64", "fp32", "fp64", "string", "timestamp", "date", "decimal")
    class Plain(_message.Message):
        __slots__ = ("type_variation_reference",)
        TYPE_VARIATION_REFERENCE_FIELD_NUMBER: _ClassVar[int]
        type_variation_reference: int
        def __init__(self, type_variation_reference: _Optional[int] = ...) -> None: ...
    class DecimalType(_message.Message):
        __slots__ = ("scale", "precision")
        SCALE_FIELD_NUMBER: _ClassVar[int]
        PRECISION_FIELD_NUMBER: _ClassVar[int]
        scale: int
        precision: int
        def __init__(self, scale: _Optional[int] = ..., precision: _Optional[int] = ...) -> None: ...
    BOOL_FIELD_NUMBER: _ClassVar[int]
    I8_FIELD_NUMBER: _ClassVar[int]
    I16_FIELD_NUMBER: _ClassVar[int]
    I32_FIELD_NUMBER: _ClassVar[int]
    I64_FIELD_NUMBER: _ClassVar[int]
    FP32_FIELD_NUMBER: _ClassVar[int]
    FP64_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    bool: Type.Plain
    i8: Type.Plain
    i16: Type.Plain
    i32: Type.Plain
    i64: Type.Plain
    fp32: Type.Plain
    fp64: Type.Plain
    string: Type.Plain
    timestamp: Type.Plain
    date: Type.Plain
    decimal: Type.DecimalType
    def __init__(self, bool: _Optional[_Union[Type.Plain, _Mapping]] = ..., i8: _Optional[_Union[Type.Plain, _Mapping]] = ..., i16: _Optional[_Union[Type.Plain, _Mapping]] = ..., i32: _Optional[_Union[Type.Plain, _Mapping]] = ..., i64: _Optional[_Union[Type.Plain, _Mapping]] = ..., fp32: _Optional[_Union[Type.Plain, _Mapping]] = ..., fp64: _Optional[_Union[Type.Plain, _Mapping]] = ..., string: _Optional[_Union[Type.Plain, _Mapping]] = ..., timestamp: _Optional[_Union[Type.Plain, _Mapping]] = ..., date: _Optional[_Union[Type.Plain, _Mapping]] = ..., decimal: _Optional[_Union[Type.DecimalType, _Mapping]] = ...) -> None: ...
