"""The command `braid`: its verbs, the options all of them share, and its one way out.

Nothing heavy is imported before a verb needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from braidlog import __version__
from braidlog.cli import exit_codes
from braidlog.cli.call import Call, client_options, shared_options
from braidlog.cli.failures import PipeClosed, conclude
from braidlog.cli.verbs.append import append
from braidlog.cli.verbs.audit import audit
from braidlog.cli.verbs.bench import bench
from braidlog.cli.verbs.cluster import cluster
from braidlog.cli.verbs.completion import completion
from braidlog.cli.verbs.consumers import consumers
from braidlog.cli.verbs.create import create
from braidlog.cli.verbs.decide import promote, squash
from braidlog.cli.verbs.demo import demo
from braidlog.cli.verbs.diff import diff
from braidlog.cli.verbs.doctor import doctor
from braidlog.cli.verbs.exporting import export
from braidlog.cli.verbs.fork import fork, renew
from braidlog.cli.verbs.importing import import_
from braidlog.cli.verbs.info import info
from braidlog.cli.verbs.ls import ls
from braidlog.cli.verbs.mcp import mcp
from braidlog.cli.verbs.read import read
from braidlog.cli.verbs.remove import drop, trim
from braidlog.cli.verbs.review import review
from braidlog.cli.verbs.serving import broker, metadata, serve
from braidlog.cli.verbs.tail import tail
from braidlog.cli.verbs.token import token
from braidlog.cli.verbs.top import top
from braidlog.cli.verbs.validate import validate, validators

_VERBS = (
    create,
    append,
    read,
    tail,
    consumers,
    ls,
    info,
    top,
    fork,
    diff,
    promote,
    squash,
    renew,
    validate,
    validators,
    review,
    audit,
    trim,
    drop,
    import_,
    export,
    serve,
    metadata,
    broker,
    cluster,
    token,
    mcp,
    doctor,
    demo,
    bench,
    completion,
)

_EXIT_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in exit_codes.MEANINGS.items())


class Braid(click.Group):
    """The group of all verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)  # in the order in which one needs them, not by the alphabet

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosed from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Carry out one call and end the process."""
        del standalone_mode  # there is one way out
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a poor terminal is no reason to fail
        call = Call()

        def carry_out() -> object:
            return super(Braid, self).main(
                args, prog_name or "braid", complete_var, standalone_mode=False, obj=call, **extra
            )

        sys.exit(conclude(call, carry_out))


cli = Braid(
    name="braid",
    commands={verb.name: verb for verb in _VERBS if verb.name is not None},
    params=[*shared_options(), *client_options()],
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A shared log that can be forked. Data goes to stdout, everything else to stderr.",
    epilog=f"\b\nExit status:\n{_EXIT_CODES}",
)
click.version_option(__version__, "--version", prog_name="braid")(cli)


def main() -> NoReturn:
    """The entry point."""
    cli.main()


if __name__ == "__main__":
    main()
