"""`braid completion`: what a shell needs to complete verbs, options and the names of logs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from braidlog.cli.call import Verb
from braidlog.cli.output import write_line


@click.command(cls=Verb)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(braid completion bash)"
    zsh:   eval "$(braid completion zsh)"
    fish:  braid completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click knows these three
    write_line(kind(context.find_root().command, {}, "braid", "_BRAID_COMPLETE").source())
