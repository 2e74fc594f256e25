"""What the commands of all agents share: their arguments, where they work, which model they have, and what they tell.

Without `--at` an agent gets a directory of its own, which the command fills, and which is gone in the end. A token is
never an argument, where others could read it: it comes from a file or a variable. Texts that come from logs or models
are shown so that a terminal does not obey them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from pydantic_ai import AgentRunResult
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.models import Model

from apps.agents.scripted import Script, Stuck
from apps.agents.workplace import SCRIPTED, Workplace, model, workplace
from braidlog.cli.rendering import printable
from braidlog.client.remote.credentials import credentials
from braidlog.errors import BraidError

MODEL_VARIABLE: Final = "BRAIDLOG_MODEL"
SEEDS: Final = 2**32


class Refused(Exception):
    """What a person asked for cannot be done. The message says why, and what to do instead."""


class Command:
    """One call of an agent's command."""

    def __init__(
        self,
        about: str | None,
        argv: Sequence[str] | None = None,
        *,
        more: Callable[[argparse.ArgumentParser], None] = lambda _: None,
    ) -> None:
        """`more` adds arguments of the agent's own; all of them are in `chosen`."""
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--at", help="a directory or a service with the logs (a directory that is gone in the end)")
        parser.add_argument(
            "--model",
            default=os.environ.get(MODEL_VARIABLE) or SCRIPTED,
            help=f"'{SCRIPTED}', or PROVIDER:NAME, such as openai:NAME (${MODEL_VARIABLE}, {SCRIPTED})",
        )
        parser.add_argument("--seed", type=int, help="that records are drawn from (another one each time)")
        parser.add_argument("--mcp", metavar="URL", help="a `braid mcp --http` that runs already, instead of --at")
        parser.add_argument("--token-file", help="with the token for --mcp ($BRAIDLOG_TOKEN, $BRAIDLOG_TOKEN_FILE)")
        more(parser)
        self.chosen = parser.parse_args(argv)
        if self.chosen.at is not None and self.chosen.mcp is not None:
            parser.error("give --at or --mcp, not both")
        if self.chosen.token_file is not None and self.chosen.mcp is None:
            parser.error("--token-file is for --mcp; a service at --at has $BRAIDLOG_TOKEN_FILE")
        self.seed: int = SystemRandom().randrange(SEEDS) if self.chosen.seed is None else self.chosen.seed
        self.model_name: str = self.chosen.model
        self._began = time.perf_counter()

    @property
    def scripted(self) -> bool:
        """Whether no model is asked."""
        return self.model_name == SCRIPTED

    def model(self, script: Callable[[str], Script]) -> Model:
        """The one that was chosen. The script is what a scripted one does."""
        try:
            return model(self.model_name, script)
        except (ImportError, ValueError, UserError) as error:
            raise Refused(f"--model {self.model_name}: {error}") from error

    @contextlib.contextmanager
    def logs(self) -> Iterator[str]:
        """Where the logs are: what was given, or a directory of its own, which is empty and gone in the end."""
        if self.chosen.mcp is not None:
            raise Refused("records cannot be drawn behind --mcp: use --at, or name a log that is there")
        if self.chosen.at is not None:
            yield self.chosen.at
            return
        with tempfile.TemporaryDirectory(prefix="braidlog-agent-") as folder:
            yield str(Path(folder) / "logs")

    @contextlib.asynccontextmanager
    async def workplace(
        self, at: str | None, agent: str, *, policy: str | Path | None = None, apart: bool = False
    ) -> AsyncIterator[Workplace]:
        """The tools over those logs; with --mcp those of the server that was given."""
        if self.chosen.mcp is None:
            async with workplace(at, agent=agent, policy=policy, apart=apart) as place:
                yield place
            return
        token = credentials(secure=False, token_file=self.chosen.token_file).token
        async with workplace(agent=agent, mcp_url=self.chosen.mcp, token=token or None) as place:
            yield place

    def tell(self, place: Workplace, answers: Sequence[AgentRunResult[Any]]) -> None:
        """How much was called and how long it took; tokens only if a model was asked that counts them."""
        counted = Counter(made.tool for made in place.calls)
        tools = ", ".join(f"{tool} {count}" for tool, count in sorted(counted.items()))
        failed = sum(made.failed for made in place.calls)
        say(f"calls: {len(place.calls)} in {len(answers)} tasks ({tools}); refused: {failed}")
        if place.first_row_s is not None:
            say(f"from the fork to the first row: {place.first_row_s:.3f} s; in all: {self.seconds:.1f} s")
        if self.scripted:
            say("model: scripted (no model was asked)")
        else:
            given = sum(answer.usage.input_tokens for answer in answers)
            made = sum(answer.usage.output_tokens for answer in answers)
            say(f"model: {self.model_name}, {given:,} tokens in, {made:,} out")

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self._began


def say(text: str) -> None:
    """Print a line that a terminal shows and never obeys."""
    print(plain(text), flush=True)


def plain(text: str) -> str:
    """Without whatever a terminal would obey, on one line."""
    return printable(text.encode("utf-8", "backslashreplace"))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Carry out a command. What went wrong is told in a line, and ends the process with status 1."""
    try:
        asyncio.run(work())
    except (Refused, Stuck, BraidError, UserError, AgentRunError, OSError) as error:
        print(f"{Path(sys.argv[0]).stem}: {plain(str(error) or type(error).__name__)}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
