"""What a query of an agent may be, when Spark carries it out: any SELECT over its views, and nothing that is more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from braidlog.spark.query_check import Checker, NotAllowed
from braidlog.spark.query_process import settings

VIEWS = {"records", "rows"}
QUERIES = [
    "SELECT a, count(*) AS n, sum(b) + 1.5 FROM records WHERE x > 1 AND y LIKE 'a%' OR z NOT IN (1, 2) GROUP BY a "
    "HAVING n > 2 ORDER BY n DESC NULLS LAST, 1 LIMIT 5 OFFSET 2",
    "WITH t AS (SELECT * FROM ROWS), u(x) AS (SELECT 1) SELECT t.a FROM T JOIN u ON t.a = u.x LEFT JOIN rows r "
    "USING (a) UNION ALL SELECT DISTINCT 2",
    "SELECT row_number() OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), "
    "CASE WHEN a = 1 THEN 'x' ELSE NULL END, CAST(a AS int), a::string, -a, NOT a, a IS NULL, a BETWEEN 1 AND 2, a[0], "
    "a.b, interval 1 day, date '2026-01-01', current_date, json:in.x::int, a - b * 2 % 3 FROM rows",
    "SELECT * FROM range(10) CROSS JOIN (VALUES (1), (2)) AS v(x) WHERE EXISTS (SELECT 1 FROM rows) "
    "AND x IN (SELECT a FROM rows) AND x = (SELECT max(a) FROM rows)",
    "SELECT k, v FROM rows LATERAL VIEW OUTER explode(m) e AS k, v",
    "SELECT filter(a, x -> x > 1), transform(b, (x, i) -> x + i) FROM rows",
    "SELECT * FROM rows PIVOT (sum(n) FOR item IN ('a', 'b'))",
    "SELECT * FROM rows UNPIVOT (v FOR k IN (a, b))",
    "SELECT a FROM rows TABLESAMPLE (10 PERCENT)",
    "SELECT a FROM rows GROUP BY GROUPING SETS ((a), (b)), ROLLUP(c), CUBE(d)",
    "SELECT sum(n) FILTER (WHERE n > 1) FROM rows GROUP BY ALL ORDER BY ALL",
    "SELECT a FROM rows EXCEPT SELECT b FROM rows INTERSECT SELECT 1",
    "FROM rows |> WHERE n > 1 |> AGGREGATE sum(n) AS s GROUP BY item |> EXTEND s + 1 AS t |> ORDER BY t |> LIMIT 3",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 10) SELECT sum(n) FROM t",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n), count(DISTINCT a), extract(year FROM t), "
    "substring(a FROM 1), position('a' IN b), trim(BOTH 'x' FROM y), a || b, a <=> b, a RLIKE 'x', a ILIKE ANY ('a'), "
    "* EXCEPT (a), a / 2, a & 1, ~a, struct(a), array(1), map('a', 1), if(a, 1, 2), try_cast(a AS int), X'ff', 1L, "
    "1.0D, true FROM rows",
    "SELECT sum(a) OVER w FROM rows WINDOW w AS (ORDER BY a)",
    "SELECT * FROM rows, LATERAL (SELECT 1)",
    "SELECT * FROM explode(array(1, 2)) AS t(x)",
    "SELECT date_trunc('hour', timestamp), approx_count_distinct(key), from_json(text, 'a int'), md5(value) "
    "FROM records",
    "SELECT variant_get(json, '$.a', 'struct<a: int>'), try_variant_get(json, '$.a'), from_json(text, '`$` int', "
    "map('mode', 'FAILFAST')) FROM records",
    "TABLE rows",
    "VALUES (1), (2 + 1)",
    "SELECT 1;",
]
ATTACKS = {
    "SET": "SET COMMAND",
    "SET spark.sql.runSQLOnFiles = true": "SET COMMAND",
    "RESET": "RESET COMMAND",
    "ADD JAR '{file}'": "ADD JARS",
    "ADD FILE '{file}'": "ADD FILES",
    "CREATE TABLE t (a int)": "CREATE TABLE",
    "CREATE TABLE t USING parquet AS SELECT 1": "CREATE TABLE AS SELECT",
    "CREATE TEMPORARY VIEW v USING text OPTIONS (path '{file}')": "CREATE TEMP VIEW",
    "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime'": "CREATE FUNCTION",
    "DECLARE VARIABLE x = 1": "CREATE VARIABLE",
    "INSERT INTO rows VALUES (1)": "INSERT",
    "INSERT OVERWRITE DIRECTORY '{file}' USING text SELECT text FROM records": "INSERT INTO DIR",
    "FROM rows INSERT INTO t SELECT *": "INSERT",
    "MERGE INTO rows USING rows r ON true WHEN MATCHED THEN DELETE": "MERGE",
    "DELETE FROM rows": "DELETE",
    "DROP VIEW records": "DROP",
    "ALTER VIEW records AS SELECT 1": "ALTER",
    "CACHE TABLE rows": "CACHE",
    "REFRESH '{file}'": "REFRESH",
    "ANALYZE TABLE rows COMPUTE STATISTICS": "ANALYZE",
    "SHOW TABLES": "SHOW",
    "SHOW DATABASES": "SHOW",
    "DESCRIBE rows": "DESCRIBE",
    "EXPLAIN SELECT 1": "EXPLAIN",
    "USE default": "",
    "CALL x()": "CALL",
    "BEGIN SELECT 1; END": "COMPOUND BODY",
    "EXECUTE IMMEDIATE 'SELECT 1'": "EXECUTE IMMEDIATE",
    "SELECT * FROM parquet.`{file}`": "no table 'parquet.",
    "SELECT * FROM text.`{file}`": "no table 'text.",
    "SELECT * FROM IDENTIFIER('text.`{file}`')": "no table 'text.",
    "SELECT * FROM IDENTIFIER('text.' || '`{file}`')": "UNRESOLVED IDENTIFIER",
    "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv')": "UNRESOLVED IDENTIFIER",
    "SELECT 1 WHERE EXISTS (SELECT * FROM csv.`{file}`)": "no table 'csv.",
    "WITH t AS (SELECT * FROM csv.`{file}`) SELECT * FROM t": "no table 'csv.",
    "WITH csv AS (SELECT 1) SELECT * FROM csv.`{file}`": "no table 'csv.",
    "SELECT (SELECT max(v) FROM (SELECT reflect('a', 'b') AS v))": "no function 'reflect'",
    "SELECT * FROM other": "no table 'other'",
    "SELECT * FROM spark_catalog.default.rows": "no table 'spark_catalog",
    "SELECT * FROM information_schema.tables": "no table 'information_schema",
    "SELECT * FROM global_temp.x": "no table 'global_temp",
    "SELECT * FROM rows WITH (url = '{file}')": "takes no options",
    "SELECT * FROM rows VERSION AS OF 1": "RELATION TIME TRAVEL",
    "SELECT * FROM STREAM rows": "STREAMING RELATION",
    "SELECT /*+ REPARTITION(1000000) */ * FROM rows": "HINT",
    "SELECT * FROM rows DISTRIBUTE BY a": "REPARTITION",
    "SELECT reflect('java.lang.System', 'getenv', 'PATH')": "no function 'reflect'",
    "SELECT REFLECT('java.lang.System', 'getenv', 'PATH')": "no function 'REFLECT'",
    "SELECT `reflect`('java.lang.System', 'getenv', 'PATH')": "no function 'reflect'",
    "SELECT java_method('java.lang.System', 'getenv', 'PATH')": "no function 'java_method'",
    "SELECT try_reflect('java.lang.System', 'getenv', 'PATH')": "no function 'try_reflect'",
    "SELECT system.builtin.reflect('java.lang.System', 'getenv', 'PATH')": "no function 'system.builtin",
    "SELECT filter(a, x -> reflect('a', 'b', x)) FROM rows": "no function 'reflect'",
    "SELECT count(*) FILTER (WHERE reflect('a', 'b')) FROM rows": "no function 'reflect'",
    "SELECT sum(a) OVER (PARTITION BY reflect('a', 'b')) FROM rows": "no function 'reflect'",
    "SELECT * FROM rows ORDER BY reflect('a', 'b')": "no function 'reflect'",
    "SELECT * FROM rows PIVOT (max(reflect('a', 'b')) FOR item IN ('a'))": "no function 'reflect'",
    "VALUES (reflect('java.lang.System', 'getenv', 'PATH'))": "no function 'reflect'",
    "SELECT * FROM range(reflect('a', 'b'))": "no function 'reflect'",
    "SELECT * FROM rows |> EXTEND reflect('a', 'b')": "no function 'reflect'",
    "SELECT * FROM rows r JOIN LATERAL (SELECT reflect('a', 'b', r.a))": "no function 'reflect'",
    "SELECT 1 LIMIT reflect('a', 'b')": "no function 'reflect'",
    "SELECT xpath(text, '/a') FROM records": "no function 'xpath'",
    "SELECT from_xml(text, 'a int') FROM records": "no function 'from_xml'",
    "SELECT from_protobuf(value, 'm', '{file}') FROM records": "no function 'from_protobuf'",
    "SELECT version(), current_user()": "no function",
    "SELECT raise_error('x')": "no function 'raise_error'",
    "SELECT input_file_name() FROM records": "no function 'input_file_name'",
    "SELECT * FROM python_worker_logs()": "no table function 'python_worker_logs'",
    "SELECT * FROM t(TABLE(rows))": "FUNCTION TABLE SUBQUERY",
    "SELECT v FROM rows LATERAL VIEW reflect('a', 'b') e AS v": "no generator 'reflect'",
    "SELECT v FROM rows LATERAL VIEW default.explode(a) e AS v": "no generator 'explode'",
    "SELECT TRANSFORM(a) USING 'cat' FROM rows": "SCRIPT",
    "FROM rows MAP a USING 'cat' AS b": "SCRIPT",
    "SELECT '${{env:AWS_SECRET_ACCESS_KEY}}'": "no place in a query",
    "SELECT 1 -- ${{spark.driver.host}}": "no place in a query",
    "SELECT from_json(text, '{udt}') FROM records": "is no type for from_json",
    "SELECT from_json(text, ' \\n{udt}') FROM records": "is no type for from_json",
    "SELECT From_Json(text, '\"integer\"') FROM records": "is no type for from_json",
    "SELECT from_json(text, concat('', '{udt}')) FROM records": "not computed",
    "SELECT from_json(text, schema => '{udt}') FROM records": "NAMED ARGUMENT",
    "SELECT from_json(text, schema_of_json(text)) FROM records": "not computed",
    "SELECT from_json(text, X'7b') FROM records": "not computed",
    "SELECT from_json(text, NULL) FROM records": "not computed",
    "SELECT variant_get(json, '$', '{udt}') FROM records": "is no type for variant_get",
    "SELECT try_variant_get(json, '$', '{udt}') FROM records": "is no type for try_variant_get",
    "SELECT :x": "NAMED PARAMETER",
    "SELECT 1" + ", 1" * 2000: "too long",
}
UDT = '{"type":"struct","fields":[{"name":"a","type":{"type":"udt","pyClass":"antigravity.X","sqlType":"string"}}]}'


@pytest.fixture(scope="module")
def checker(spark: SparkSession) -> Checker:
    return Checker(spark)


@pytest.mark.parametrize("sql", QUERIES, ids=lambda sql: sql[:40])
def test_queries_are_let_through(checker: Checker, sql: str) -> None:
    checker.check(sql, VIEWS)


@pytest.mark.parametrize("sql", ATTACKS, ids=lambda sql: sql[:40])
def test_everything_else_is_refused_before_it_is_run(checker: Checker, sql: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        checker.check(sql.format(file="/etc/passwd", udt=UDT), VIEWS)
    assert ATTACKS[sql] in str(refused.value)


def test_nothing_is_put_in_even_if_the_check_were_not_there(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT '${env:AWS_SECRET_ACCESS_KEY}' AS a"
    assert "${" not in spark.sql(sql).head()[0]  # so there is something to be told
    session = spark.newSession()
    name = "spark.sql.variable.substitute"
    session.conf.set(name, settings(tmp_path)[name])
    assert session.sql(sql).head()[0] == "${env:AWS_SECRET_ACCESS_KEY}"


@pytest.mark.parametrize("sql", ["SELECT 1; SELECT 2", "SELEC 1", "", "LOAD x", "SELECT @@x"])
def test_what_is_no_statement_is_told_by_spark(checker: Checker, sql: str) -> None:
    with pytest.raises(PySparkException, match="PARSE"):
        checker.check(sql, VIEWS)


def test_a_view_that_is_not_there_is_no_table(checker: Checker) -> None:
    with pytest.raises(NotAllowed, match="no table 'rows'"):
        checker.check("SELECT * FROM rows", {"records"})
