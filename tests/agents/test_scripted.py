"""A scripted model calls real tools, decides from what they return, and knows what was refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from pydantic import BaseModel, Field

import braidlog
from apps.agents.scripted import Call, Script, Stuck, scripted
from apps.agents.workplace import Made, Worker, workplace

DEADLINE_S = 60


class Totals(BaseModel):
    """What the script of these tests is to find."""

    log: str
    total: int = Field(ge=0)


@pytest.fixture
def numbers() -> list[int]:
    return [SystemRandom().randrange(1000) for _ in range(50)]


@pytest.fixture
def place(tmp_path: Path, numbers: list[int]) -> str:
    """Two logs; which of them has numbers is to be found out."""
    at = str(tmp_path / "logs")
    with braidlog.open(at) as braid:
        braid.create("names").append_many([b'{"name": "a"}'] * 3)
        braid.create("numbers").append_many([json.dumps({"n": n}).encode() for n in numbers])
    return at


def asked(at: str, script: Any, output: Any, question: str = "?", **options: Any) -> tuple[Any, list[Made]]:
    """What a scripted agent answers, and what it called."""

    async def work() -> tuple[Any, list[Made]]:
        async with asyncio.timeout(DEADLINE_S), workplace(at, agent="scripter") as place:
            worker = Worker(place, scripted(script), "You are a script.", output=output, **options)
            return (await worker.ask(question)).output, list(worker.calls)

    return asyncio.run(work())


def test_calls_of_a_step_are_made_at_once_and_answered_in_their_order(place: str, numbers: list[int]) -> None:
    def script(question: str) -> Script:
        (logs,) = yield [Call("list_logs")]
        names = [log["name"] for log in logs["logs"]]
        described = yield [Call("describe_log", {"log": name}) for name in names]
        fields = [list(one["json_schema"]["properties"]) for one in described]
        log = names[fields.index([question])]
        (found,) = yield [Call("query_sql", {"log": log, "sql": f"SELECT sum({question}) FROM rows"})]
        return Totals(log=log, total=found["rows"][0][0])

    answer, calls = asked(place, script, Totals, "n")
    assert answer == Totals(log="numbers", total=sum(numbers))
    assert sorted(call.tool for call in calls) == ["describe_log", "describe_log", "list_logs", "query_sql"]
    assert calls[-1].tool == "query_sql"
    assert [call.rows for call in calls] == [0, 0, 0, 1]
    described = [call for call in calls if call.tool == "describe_log"]
    assert described[1].began_s < described[0].began_s + described[0].seconds  # before the first had ended


def test_an_answer_is_a_text_where_no_type_is_asked_for(place: str) -> None:
    def script(question: str) -> Script:
        (logs,) = yield [Call("list_logs")]
        return f"{question}: {len(logs['logs'])}"

    assert asked(place, script, str, "how many")[0] == "how many: 2"


def test_a_refusal_reaches_the_script_which_goes_on(place: str) -> None:
    def script(_: str) -> Script:
        refused = yield [
            Call("append_records", {"fork": "numbers", "records": [{"value": {"n": 1}}]}),
            Call("query_sql", {"log": "numbers", "sql": "SELECT nonsense FROM rows"}),
            Call("describe_log", {"log": "nothing"}),
            Call("query_sql", {"log": "numbers", "sql": "SELECT count(*) FROM rows", "max_rows": "many"}),
        ]
        assert [one.failed for one in refused] == [True] * 4
        (made,) = yield [Call("create_fork", {"log": "numbers", "name": "mine"})]
        (done,) = yield [Call("append_records", {"fork": made["fork"]["name"], "records": [{"value": {"n": 1}}]})]
        return json.dumps([str(one.content) for one in refused] + [str(done["first"])])

    answer, calls = asked(place, script, str)
    root, column, name, argument, first = json.loads(answer)
    assert "agents do not append to roots" in root
    assert "nonsense" in column
    assert "'nothing'" in name
    assert "max_rows" in argument
    assert first == "50"
    assert [call.failed for call in calls] == [True, True, True, True, False, False]


def test_a_refusal_that_a_script_does_not_expect_ends_it(place: str) -> None:
    def script(_: str) -> Script:
        (found,) = yield [Call("query_sql", {"log": "nothing", "sql": "SELECT 1"})]
        return found["rows"]

    with pytest.raises(Stuck, match=r"the script did not expect it: .*'nothing'"):
        asked(place, script, str)


def test_a_tool_that_there_is_not_is_a_refusal_too(place: str) -> None:
    def script(_: str) -> Script:
        (first,) = yield [Call("drop_everything")]
        return "gone" if not first.failed else "there is none"

    assert asked(place, script, str)[0] == "there is none"


def test_an_answer_that_is_not_of_its_type_ends_the_run(place: str) -> None:
    def script(_: str) -> Script:
        (logs,) = yield [Call("list_logs")]
        return {"log": "numbers", "total": -len(logs["logs"])}

    with pytest.raises(Stuck, match=r"the answer of the script was refused.*greater than or equal to 0"):
        asked(place, script, Totals)


def test_a_step_without_calls_ends_the_run(place: str) -> None:
    def script(_: str) -> Script:
        yield []
        return "never"

    with pytest.raises(Stuck, match="calls nothing"):
        asked(place, script, str)


def test_tools_of_the_agents_own_are_called_like_others(place: str) -> None:
    def doubled(number: int) -> dict[str, int]:
        """Twice the number."""
        return {"number": 2 * number}

    def script(question: str) -> Script:
        logs, twice = yield [Call("list_logs"), Call("doubled", {"number": int(question)})]
        return str(twice["number"] + len(logs["logs"]))

    assert asked(place, script, str, "20", tools=[doubled])[0] == "42"


def test_a_run_is_the_same_again(place: str) -> None:
    """The script runs anew from its beginning at each step, on what was returned then."""
    began = []

    def script(_: str) -> Script:
        began.append(1)
        (one,) = yield [Call("list_logs", {"pattern": "n*"})]
        (two,) = yield [Call("describe_log", {"log": one["logs"][0]["name"]})]
        (three,) = yield [Call("read_records", {"log": two["lineage"][0], "limit": 1})]
        return three["records"][0]["value"]["name"]

    assert asked(place, script, str)[0] == "a"
    assert len(began) == 4
