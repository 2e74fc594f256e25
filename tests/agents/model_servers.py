"""Small servers that speak the protocols of models over HTTP, for agents whose model is not scripted.

What they answer is decided by a function of what the tools returned. They check how they are asked: who calls without
the key, with a tool that has no schema, or with results that are not those of its calls is refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "a-key-for-tests"
TOKENS_IN, TOKENS_OUT = 11, 7

Calls = Sequence[tuple[str, dict[str, Any]]]
Decide = Callable[[list[Any]], Calls]  # from what the tools returned, all of it, to the tools to call next


@dataclass
class ModelServer:
    """One that is listening."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Wrong(Exception):
    """How a request is not to be."""


@contextmanager
def serving(path: str, answer: Callable[[dict[str, Any], Any], dict[str, Any]]) -> Iterator[ModelServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                if self.path.partition("?")[0] != path:
                    raise Wrong(f"there is nothing at {self.path}")
                server.asked.append(request)
                status, told = 200, answer(request, self.headers)
            except Wrong as wrong:
                server.refused.append(str(wrong))
                status, told = 400, {"error": {"type": "invalid_request_error", "message": str(wrong)}}
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = ModelServer(f"http://127.0.0.1:{listening.server_address[1]}")
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


@contextmanager
def chat_completions(decide: Decide) -> Iterator[ModelServer]:
    """OpenAI's protocol of chat completions."""

    def answer(request: dict[str, Any], headers: Any) -> dict[str, Any]:
        _check(headers["Authorization"] == f"Bearer {KEY}", "the key is wrong")
        _check_tools([(tool["function"]["name"], tool["function"]["parameters"]) for tool in request["tools"]])
        messages = request["messages"]
        called = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
        returned = [message for message in messages if message["role"] == "tool"]
        _check([message["tool_call_id"] for message in returned] == called, "each call has one result, in its order")
        calls = decide([_decoded(message["content"]) for message in returned])
        return {
            "id": f"answer-{len(messages)}",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": f"call-{len(messages)}-{number}",
                                "type": "function",
                                "function": {"name": name, "arguments": json.dumps(arguments)},
                            }
                            for number, (name, arguments) in enumerate(calls)
                        ],
                    },
                }
            ],
            "usage": {
                "prompt_tokens": TOKENS_IN,
                "completion_tokens": TOKENS_OUT,
                "total_tokens": TOKENS_IN + TOKENS_OUT,
            },
        }

    with serving("/v1/chat/completions", answer) as server:
        yield server


@contextmanager
def anthropic_messages(decide: Decide) -> Iterator[ModelServer]:
    """Anthropic's protocol of messages."""

    def answer(request: dict[str, Any], headers: Any) -> dict[str, Any]:
        _check(
            KEY in (headers["x-api-key"], (headers["Authorization"] or "").removeprefix("Bearer ")), "the key is wrong"
        )
        _check_tools([(tool["name"], tool["input_schema"]) for tool in request["tools"]])
        parts = [part for message in request["messages"] for part in _parts(message["content"])]
        called = [part["id"] for part in parts if part["type"] == "tool_use"]
        returned = [part for part in parts if part["type"] == "tool_result"]
        _check([part["tool_use_id"] for part in returned] == called, "each call has one result, in its order")
        calls = decide([_decoded(_text(part["content"])) for part in returned])
        return {
            "id": f"answer-{len(parts)}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": [
                {"type": "tool_use", "id": f"call-{len(parts)}-{number}", "name": name, "input": arguments}
                for number, (name, arguments) in enumerate(calls)
            ],
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT},
        }

    with serving("/v1/messages", answer) as server:
        yield server


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


def _check_tools(tools: list[tuple[str, dict[str, Any]]]) -> None:
    for name, schema in tools:
        _check(schema.get("type") == "object" and "properties" in schema, f"{name} has no schema")


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: Any) -> str:
    return "".join(part["text"] for part in _parts(content))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
