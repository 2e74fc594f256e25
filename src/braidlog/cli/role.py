"""A verb that is a role: its options are the settings of that role, and a secret setting has none.

What is wrong with a setting is found by `config`, so that it is told in the same words wherever the setting came from.
"""

from __future__ import annotations

import os
from typing import Any

import click

from braidlog import config
from braidlog.cli.call import Call, Verb
from braidlog.cli.output import Json, say, write_json, write_line
from braidlog.config import Setting, Settings


class Role(Verb):
    """A verb named like a role of `config.ROLES`. Its function gets the call and what the command line gives."""

    client = False  # what it shows to whom is among its settings

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.name is not None
        own = [option for setting in config.ROLES[self.name] if (option := _option_of(setting)) is not None]
        self.params = [*own, *_OF_EVERY_ROLE, *self.params]


def settings_of(call: Call, role: str, given: dict[str, Any]) -> Settings | None:
    """What is set; None if that was all there was to do, and was shown."""
    if call.token_file is not None or call.tls_ca is not None:
        raise click.UsageError(
            f"--token-file and --tls-ca before the verb are for clients: `braid {role} --help` shows its settings"
        )
    file = given.pop("config_file") or os.environ.get(config.FILE_VARIABLE) or None
    shown = given.pop("show_config")
    found = config.resolve(role, given | {"at": call.url}, os.environ, file)
    if shown:
        _show(call, found)
        return None
    for name in config.unknown_variables(os.environ):
        say(f"{name} is set, which is no setting: ignored")
    return found


def _show(call: Call, settings: Settings) -> None:
    if call.json:
        document: dict[str, Json] = {"role": settings.role}
        for name, chosen in settings.document().items():
            document[name] = {key: list(part) if isinstance(part, list) else part for key, part in chosen.items()}
        write_json(document)
        return
    for line in settings.lines():
        write_line(line)


def _option_of(setting: Setting) -> click.Option | None:
    if setting.option is None or setting.name == "at":  # which every verb has
        return None
    kind = setting.kind
    shown = "" if setting.default is None or kind.flag else f" [default: {kind.toml(setting.default)}]"
    required = " [required]" if setting.required else ""
    return click.Option(
        [f"{setting.option}/--no-{setting.option[2:]}" if kind.flag else setting.option, setting.name],
        help=f"{setting.help}{shown}{required}",
        default=None,
        is_flag=kind.flag,
        multiple=kind.many,
        type=bool if kind.flag else str,
        metavar=None if kind.flag else kind.metavar,
    )


_OF_EVERY_ROLE: list[click.Parameter] = [
    click.Option(
        ["--config", "config_file"],
        metavar="FILE",
        help=f"A TOML file of settings, a table for each role. Or set {config.FILE_VARIABLE}.",
    ),
    click.Option(
        ["--show-config"], is_flag=True, help="Print what is set and where it came from, and do nothing else."
    ),
]
