"""A model that is a script: no network is asked, and what it does next is decided by what the tools returned.

A script is a generator. It gets what the agent was asked, yields the calls of one step, which are made at once, gets
what they returned, and in the end returns the agent's answer.

    def script(asked: str) -> Script:
        (logs,) = yield [Call("list_logs", {"pattern": "iot*"})]
        found = yield [Call("query_sql", {"log": log["name"], "sql": asked}) for log in logs["logs"]]
        return f"{sum(len(one['rows']) for one in found)} rows"

It is replayed from the messages of its run at each step, so a script keeps nothing between steps, and draws nothing.
What a tool refused comes as a `Returned` that failed. A script that expects that looks at it; one that does not is
stuck as soon as it takes a field of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel


@dataclass(frozen=True)
class Call:
    """A tool, and what it is given."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Returned:
    """What a call brought: the fields of a structured answer, or the text of an error."""

    content: Any
    failed: bool = False

    def __getitem__(self, name: str) -> Any:
        if self.failed:
            raise Stuck(f"a tool refused, and the script did not expect it: {self.content}")
        return self.content[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field that may be left out."""
        if self.failed:
            raise Stuck(f"a tool refused, and the script did not expect it: {self.content}")
        return self.content.get(name, default)


Script = Generator[Sequence[Call], list[Returned], Any]


Think = Callable[[Callable[[str], Script]], Model]  # which model it is to be, by what a scripted one does


class Stuck(Exception):
    """A script that does not know what to do with what a tool returned."""


def scripted(script: Callable[[str], Script], name: str = "scripted") -> FunctionModel:
    """A script as a model. Its answer is a text, or what the agent's output type takes."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        running = script(_asked(messages))
        returned = _steps(messages)
        taken = 0
        try:
            calls = next(running)
            for step in returned:
                taken += 1
                calls = running.send(step)
        except StopIteration as ended:
            if taken < len(returned):
                raise Stuck(f"the answer of the script was refused: {returned[-1][-1].content}") from None
            return _answer(ended.value, info)
        if not calls:
            raise Stuck("the script calls nothing, and does not answer: yield calls, or return")
        return ModelResponse(parts=[ToolCallPart(call.tool, call.arguments) for call in calls])

    return FunctionModel(respond, model_name=name)


def _asked(messages: Iterable[ModelMessage]) -> str:
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart) and isinstance(part.content, str):
                return part.content
    raise Stuck("a scripted agent was asked nothing")


def _steps(messages: Iterable[ModelMessage]) -> list[list[Returned]]:
    """What each step of calls returned, in the order of the calls."""
    returned: dict[str, Returned] = {}
    steps: list[list[str]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            steps.append([part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)])
        elif isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    returned[part.tool_call_id] = Returned(part.content, part.outcome != "success")
    return [[returned[call] for call in step] for step in steps if step]


def _answer(value: Any, info: AgentInfo) -> ModelResponse:
    if not info.output_tools:
        return ModelResponse(parts=[TextPart(str(value))])
    fields = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, fields)])
