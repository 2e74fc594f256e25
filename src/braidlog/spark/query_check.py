"""Whether a text is one query that reads the views it may read, and does nothing else. Decided before it is run.

Spark parses the text, and everything that came of it is looked at: nodes, expressions, and whatever they hold. What is
not known to be harmless is refused, so a statement that Spark learns one day is refused too. Names are the other half:
of tables only the views, or what the query itself defined by WITH; of functions those of groups that compute a value
from values, which leaves out those that call Java, read files, or tell of the process. Texts that are code of their own
are the third: types are written as in a CREATE TABLE, never as JSON, which could name a class of Python to be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from braidlog import limits
from braidlog.errors import InvalidArgument

_CATALYST: Final = "org.apache.spark.sql.catalyst."
_LOGICAL: Final = {
    *("Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "JoinHint"),
    *("LateralJoin", "LimitAll", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project"),
    *("Sample", "SampleMethod$Bernoulli$", "Sort", "SubqueryAlias", "Union", "Unpivot", "UnresolvedWith"),
    "WithWindowDefinition",
}
_ANALYSIS: Final = {
    *("UnresolvedAlias", "UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedFunction", "UnresolvedGenerator"),
    *("UnresolvedHaving", "UnresolvedInlineTable", "UnresolvedOrdinal", "UnresolvedRelation", "UnresolvedStar"),
    *("UnresolvedStarExceptOrReplace", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases"),
    "UnresolvedTableValuedFunction",
}
_EXPRESSIONS: Final = {
    *("Add", "Alias", "And", "Ascending$", "AttributeReference", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
    *("CaseWhen", "Cast", "Coalesce", "Collate", "Concat", "CreateNamedStruct", "Cube", "CurrentRow$", "Descending$"),
    *("Divide", "EqualNullSafe", "EqualTo", "Exists", "ExprId", "GreaterThan", "GreaterThanOrEqual", "GroupingSets"),
    *("In", "InSubquery", "IntegralDivide", "IsNotNull", "IsNull", "LambdaFunction", "LateralSubquery", "LessThan"),
    *("LessThanOrEqual", "Like", "LikeAll", "LikeAny", "ListQuery", "Literal", "Lower", "Multiply", "Not"),
    *("NotLikeAll", "NotLikeAny", "NullsFirst$", "NullsLast$", "NumericEvalContext", "Or", "Overlay", "PipeExpression"),
    *("PipeOperator", "RLike", "RangeFrame$", "Remainder", "Rollup", "RowFrame$", "ScalarSubquery"),
    *("SemiStructuredExtract", "SortOrder", "SpecifiedWindowFrame", "StringLocate", "StringTrim", "StringTrimLeft"),
    *("StringTrimRight", "Substring", "Subtract", "UnaryMinus", "UnaryPositive", "UnboundedFollowing$"),
    *("UnboundedPreceding$", "UnresolvedCollation", "UnresolvedNamedLambdaVariable", "UnresolvedWindowExpression"),
    *("UnspecifiedFrame$", "WindowExpression", "WindowSpecDefinition", "WindowSpecReference"),
}
_JOINS: Final = {
    *("Cross$", "FullOuter$", "Inner$", "LeftAnti$", "LeftOuter$", "LeftSemi$", "NaturalJoin", "RightOuter$"),
    "UsingJoin",
}
_NODES: Final = (
    {f"{_CATALYST}plans.logical.{name}" for name in _LOGICAL}
    | {f"{_CATALYST}analysis.{name}" for name in _ANALYSIS}
    | {f"{_CATALYST}expressions.{name}" for name in _EXPRESSIONS}
    | {f"{_CATALYST}plans.{name}" for name in _JOINS}
    | {f"{_CATALYST}AliasIdentifier", f"{_CATALYST}FunctionIdentifier"}
    | {"scala.None$", "scala.Some", "scala.Tuple2", "scala.Tuple3"}
)
_LEAVES: Final = {
    f"{_CATALYST}expressions.GenericInternalRow",  # values that were written down in the query
    "java.util.UUID",
    "org.apache.spark.sql.util.CaseInsensitiveStringMap",
    "org.apache.spark.unsafe.types.CalendarInterval",
    "org.apache.spark.unsafe.types.UTF8String",
    "scala.Enumeration$Val",
}
_TYPES: Final = "org.apache.spark.sql.types."
_SCALARS: Final = (str, int, float, bool, bytes, bytearray)
_GROUPS: Final = {
    *("agg_funcs", "array_funcs", "bitwise_funcs", "collection_funcs", "conditional_funcs", "conversion_funcs"),
    *("datetime_funcs", "generator_funcs", "hash_funcs", "json_funcs", "lambda_funcs", "map_funcs", "math_funcs"),
    *("predicate_funcs", "sketch_funcs", "string_funcs", "struct_funcs", "url_funcs", "variant_funcs", "vector_funcs"),
    "window_funcs",
}
_MORE_FUNCTIONS: Final = {"typeof", "uuid"}
_TABLE_FUNCTIONS: Final = {
    *("range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack"),
    *("json_tuple", "variant_explode", "variant_explode_outer"),
}
_TYPE_ARGUMENTS: Final = {"from_json": 1, "variant_get": 2, "try_variant_get": 2}  # which of them is a type
_SUBSTITUTED: Final = "${"


class NotAllowed(InvalidArgument):
    """What such a text would do is more than to read the views."""


class Checker:
    """Knows the functions that there are."""

    def __init__(self, spark: SparkSession) -> None:
        state = spark._jsparkSession.sessionState()
        self._parser = state.sqlParser()
        registry = state.functionRegistry()
        functions = set(_MORE_FUNCTIONS)
        for name in _each(registry.listFunction()):
            about = registry.lookupFunction(name)
            if about.isDefined() and about.get().getGroup() in _GROUPS:
                functions.add(str(name.funcName()).lower())
        self._functions = functions
        self._types = spark._jvm.org.apache.spark.sql.types.DataType  # type: ignore[union-attr]

    def check(self, sql: str, views: set[str]) -> None:
        """NotAllowed unless it is one query over these views. Spark's own error, if it is no statement at all."""
        if _SUBSTITUTED in sql:
            raise NotAllowed(f"{_SUBSTITUTED!r} has no place in a query, as nothing is put in for it")
        found = list(_nodes(self._parser.parsePlan(sql)))
        defined = {
            str(relation.productElement(0)).lower()
            for node, kind in found
            if kind == "UnresolvedWith"
            for relation in _each(node.cteRelations())
        }
        for node, kind in found:
            if kind == "UnresolvedRelation":
                _check_table(node, views | defined)
            elif kind == "UnresolvedFunction":
                _check_name(_parts(node.nameParts()), self._functions, "function")
                self._check_type(node)
            elif kind == "UnresolvedTableValuedFunction":
                _check_name(_parts(node.name()), _TABLE_FUNCTIONS, "table function")
            elif kind == "FunctionIdentifier":
                known = {""} if node.database().isDefined() or node.catalog().isDefined() else _TABLE_FUNCTIONS
                _check_name([str(node.funcName())], known, "generator")

    def _check_type(self, function: Any) -> None:
        name = _parts(function.nameParts())[0].lower()
        place = _TYPE_ARGUMENTS.get(name)
        if place is None:
            return
        for argument in list(_each(function.arguments()))[place : place + 1]:
            literal = argument.getClass().getName() == f"{_CATALYST}expressions.Literal"
            if not literal or argument.dataType().typeName() != "string":
                raise NotAllowed(f"the type that {name} takes is written down as a text, not computed")
            written = str(argument.value().toString())
            try:
                self._types.fromDDL(written)
            except ParseException:
                shown = written[: limits.SQL_NAME_CHARS_MAX]
                raise NotAllowed(f"{shown!r} is no type for {name}: write it like 'a INT, b STRING'") from None


def _check_table(node: Any, allowed: set[str]) -> None:
    parts = _parts(node.multipartIdentifier())
    _check_name(parts, allowed, "table")
    if not node.options().isEmpty():
        raise NotAllowed(f"{parts[0]!r} takes no options")


def _check_name(parts: list[str], allowed: set[str], what: str) -> None:
    if len(parts) != 1 or parts[0].lower() not in allowed:
        raise NotAllowed(f"there is no {what} {'.'.join(parts)[: limits.SQL_NAME_CHARS_MAX]!r} for a query")


def _nodes(plan: Any) -> Iterator[tuple[Any, str]]:
    """All that a plan holds, with what kind of thing it is. NotAllowed for what is not known, or without end."""
    waiting, count = [plan], 0
    while waiting:
        item = waiting.pop()
        if item is None or isinstance(item, _SCALARS):
            continue
        count += 1
        if count > limits.SQL_SPARK_PARTS_ROWS_MAX:
            raise NotAllowed("the query is too long: write a shorter one")
        if not hasattr(item, "getClass"):  # a number that the bridge turned into one of Python's
            continue
        kind = str(item.getClass().getName())
        if kind.startswith("scala.collection.immutable."):
            waiting.extend(_each(item))
        elif kind in _NODES:
            yield item, kind.rpartition(".")[2]
            waiting.extend(_drained(item.productIterator()))
        elif kind not in _LEAVES and not kind.startswith(_TYPES):
            raise NotAllowed(f"{_words(kind)} is not a part of a query: only SELECT is carried out")


def _each(collection: Any) -> Iterator[Any]:
    return _drained(collection.iterator())


def _parts(names: Any) -> list[str]:
    return [str(part) for part in _each(names)]


def _drained(items: Any) -> Iterator[Any]:
    while items.hasNext():
        yield items.next()


def _words(kind: str) -> str:
    """`SetCommand` as SET COMMAND."""
    name = kind.rpartition(".")[2].partition("$")[0]
    return " ".join(re.findall(r"[A-Z][a-z]*", name)).upper() or name
