"""How a call ends: its status, and what it says when something went wrong.

No traceback reaches a person for a mistake of theirs. With `--json` an error is one JSON object on stderr. A reader who
closes the pipe has seen enough: that ends the call quietly and is no error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import click
from click.exceptions import NoArgsIsHelpError

from braidlog import errors
from braidlog.cli import exit_codes
from braidlog.cli.call import Call
from braidlog.cli.output import flush, say
from braidlog.errors import BraidError

_HINTS: dict[type[BraidError], str] = {
    errors.NotFound: "`braid ls` shows the logs there are",
    errors.AlreadyExists: "`braid ls` shows the names that are taken",
    errors.Blocked: "`braid ls` shows the hold: promote or squash the fork; append and fork can --wait for that",
    errors.NotPromotable: "make it with `braid fork LOG --promotable`",
    errors.Locked: "read, tail, ls, info, diff, export and doctor work meanwhile",
    errors.Corrupt: "`braid doctor` checks everything and says what to do",
    errors.Trimmed: "`braid info LOG` shows where it starts",
    errors.OutOfRange: "`braid info LOG` shows where it ends",
}

# For what the library says in words of Python, and for what its kind of error alone does not tell. The first that fits.
_HINTS_BY_WORDS: tuple[tuple[str, str], ...] = (
    ("`consumers()` lists", "`braid consumers LOG` shows those it has"),
    ("there is no directory", "--at URL, or BRAIDLOG_URL, says which directory; `braid create NAME` makes one there"),
    ("use drop()", "`braid drop LOG` deletes a root"),
    ("use squash()", "`braid squash FORK` deletes a fork"),
    ("drop with cascade=True", "`braid drop LOG --cascade` deletes its forks too"),
    ("forget_consumer()", "`braid consumers LOG --forget NAME` forgets one"),
    ("give token= or token_file", "--token-file FILE gives the token, or BRAIDLOG_TOKEN_FILE names its file"),
    ("`logs()` lists", "`braid ls` shows the logs there are, `braid create NAME` makes one"),
    ("open it with log()", "`braid info LOG` shows it, `braid ls` the names that are taken"),
)


class PipeClosed(Exception):
    """Whoever read our stdout has gone. No OSError, which click would take for its own."""


class Refused(Exception):
    """The call cannot be carried out, for a reason that is not an error of the library."""

    def __init__(self, message: str, code: int = exit_codes.FAILED) -> None:
        super().__init__(message)
        self.code = code


def conclude(call: Call, carry_out: Callable[[], object]) -> int:
    """Carry out a call and return the status to end with, having told what went wrong."""
    try:
        status = carry_out()
        flush()
        return status if isinstance(status, int) else exit_codes.OK
    except BraidError as error:
        return _tell(call, error, str(error), exit_codes.code_of(error), _hint(error))
    except NoArgsIsHelpError as error:
        say(error.format_message())
        return exit_codes.USAGE
    except click.UsageError as error:
        if not call.json and error.ctx is not None:
            say(error.ctx.get_usage())
        hint = f"`{error.ctx.command_path} --help` explains" if error.ctx is not None else ""
        return _tell(call, error, error.format_message(), exit_codes.USAGE, hint)
    except click.ClickException as error:
        return _tell(call, error, error.format_message(), exit_codes.FAILED, "")
    except Refused as error:
        return _tell(call, error, str(error), error.code, "")
    except (KeyboardInterrupt, click.Abort):
        return exit_codes.INTERRUPTED
    except (BrokenPipeError, PipeClosed):
        # Python flushes stdout once more when it ends, and must not find the broken pipe there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return exit_codes.OK
    except OSError as error:
        return _tell(call, error, f"the system refuses: {error}", exit_codes.FAILED, "")


def _hint(error: BraidError) -> str:
    message = str(error)
    by_words = (hint for words, hint in _HINTS_BY_WORDS if words in message)
    return next(by_words, _HINTS.get(type(error), ""))


def _tell(call: Call, error: BaseException, message: str, code: int, hint: str) -> int:
    notes: list[str] = getattr(error, "__notes__", [])
    if call.json:
        document = {"error": type(error).__name__, "message": message, "exit_code": code, "notes": notes, "hint": hint}
        say(json.dumps(document))  # it escapes what is not UTF-8, where msgspec refuses
        return code
    say(f"braid: {message}")
    for note in notes:
        say(note)
    if hint and "`braid " not in message:
        say(f"hint: {hint}")
    return code
