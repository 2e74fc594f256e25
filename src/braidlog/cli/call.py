"""One call of `braid`: which place it works on, in which form it answers, and how verbs open that place.

`--at`, `--json` and what a client shows to a service may stand before or after the verb. Verbs that only read open a
directory read-only, so that they work next to a writer; verbs that write never create a directory by the way, except
those whose purpose it is. At a service, `braid://host:port`, all of them are its clients.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.shell_completion import CompletionItem

from braidlog.config import URL_VARIABLE, refuse_password
from braidlog.errors import BraidError, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from braidlog import Braid
    from braidlog.agents import Access

F = TypeVar("F", bound=Callable[..., Any])

PLACES = "a directory, file:///path, braid://host:port, braids://host:port (TLS) or memory://"


@dataclass
class Call:
    """What was asked for besides the verb."""

    url: str | None = None
    json: bool = False
    tls_ca: str | None = None
    token_file: str | None = None

    def require_url(self) -> str:
        """Where the logs are."""
        url = self.url if self.url is not None else os.environ.get(URL_VARIABLE)
        if not url:
            raise click.UsageError(f"which logs? Give --at URL, or set {URL_VARIABLE}. A URL is {PLACES}.")
        if "://" in url:
            refuse_password(url)  # here, before anything tells the URL
        return url

    def folder(self) -> Path | None:
        """The directory that the URL names; None for memory and for a service."""
        from braidlog.client.opening import directory_of

        return None if self.served else directory_of(self.require_url())

    @property
    def served(self) -> bool:
        """Whether the URL names a service."""
        return self.require_url().startswith(("braid://", "braids://"))

    def require_folder(self, what: str) -> Path:
        """The directory, for what can be done with nothing else."""
        folder = self.folder()
        if folder is None:
            why = "is a service" if self.served else "begins empty each time"
            raise click.UsageError(f"{what}, and {self.require_url()} {why}: give --at DIR")
        return folder

    def open_reading(self) -> Braid:
        """Open to look only."""
        import braidlog

        folder = self._existing_folder()
        if folder is not None:
            return braidlog.open(self.require_url(), read_only=True)
        return self._open()

    def open_writing(self, *, create: bool = False) -> Braid:
        """Open to change something; the directory must be there unless `create`."""
        if not create:
            self._existing_folder()
        return self._open()

    def is_new(self) -> bool:
        """Whether the URL names a directory that there is not yet, or an empty one."""
        folder = self.folder()
        return folder is not None and _holds_nothing(folder)

    def check_clients(self) -> None:
        """UsageError if what only a service looks at was given for something else."""
        if not self.served and (self.token_file is not None or self.tls_ca is not None):
            raise click.UsageError(
                "--token-file and --tls-ca are for services, braid:// and braids://: a directory asks nobody who they "
                "are, so leave them out"
            )

    def check_place(self) -> None:
        """NotFound if the URL names a directory that holds no logs: only verbs whose purpose it is create one."""
        self._existing_folder()

    def access(self) -> Access:
        """How the processes of validators get at the same logs, as whoever calls."""
        from braidlog.agents import Access

        folder = self.folder()
        if folder is None and not self.served:
            raise click.UsageError(
                "validators run in processes of their own, which cannot see memory://: give --at DIR"
            )
        url = self.require_url() if folder is None else folder.as_uri()
        return Access(url=url, token_file=self.token_file, tls_ca=self.tls_ca)

    def _open(self) -> Braid:
        import braidlog

        url = self.require_url()
        self.check_clients()
        if not self.served:
            return braidlog.open(url)
        return braidlog.open(url, tls_ca=self.tls_ca, token_file=self.token_file)

    def _existing_folder(self) -> Path | None:
        self.check_clients()
        folder = self.folder()
        if folder is not None and _holds_nothing(folder):
            raise NotFound(f"there are no logs at {folder}: check the path, or `braid create` one there")
        return folder


def _holds_nothing(folder: Path) -> bool:
    return not (folder.is_dir() and os.listdir(folder))


pass_call = click.make_pass_decorator(Call, ensure=True)


class Verb(click.Command):
    """A verb of `braid`, with the options that all verbs share."""

    client: ClassVar[bool] = True  # of services, and not one itself

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {parameter.name for parameter in self.params}
        common = [*shared_options(), *(client_options() if self.client else ())]
        self.params += [option for option in common if option.name not in own]


class VerbGroup(click.Group):
    """A verb with verbs of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [*shared_options(), *client_options()]

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


def shared_options() -> list[click.Parameter]:
    """`--at` and `--json`, for the command and for each verb."""
    return [
        click.Option(
            ["--at"],
            metavar="URL",
            expose_value=False,
            is_eager=True,
            callback=_set_url,
            help=f"Where the logs are: {PLACES}. Or set {URL_VARIABLE}.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_set_json,
            help="Answer in JSON.",
        ),
    ]


def client_options() -> list[click.Parameter]:
    """How verbs speak with a service: for the command, and for each verb that is a client."""
    return [
        click.Option(
            ["--tls-ca"],
            metavar="FILE",
            expose_value=False,
            callback=_set_tls_ca,
            help="For braids://: who signs the service's certificate. Or set BRAIDLOG_TLS_CA.",
        ),
        click.Option(
            ["--token-file"],
            metavar="FILE",
            expose_value=False,
            callback=_set_token_file,
            help="A file with the token for the service. Or set BRAIDLOG_TOKEN or BRAIDLOG_TOKEN_FILE.",
        ),
    ]


def _set_tls_ca(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Call).tls_ca = value


def _set_token_file(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Call).token_file = value


def _set_url(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Call).url = value


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Call).json = True


def log_argument(name: str, *, required: bool = True) -> Callable[[F], F]:
    """The name of a log or a fork, which a shell completes from those there are."""
    return click.argument(name, required=required, shell_complete=_names)


def _names(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        with context.ensure_object(Call).open_reading() as braid:
            return [CompletionItem(log.name) for log in braid.logs() if log.name.startswith(incomplete)]
    except (BraidError, click.UsageError, OSError):
        return []  # a shell that asks for completions has no use for our troubles
