"""`braid mcp`: the server through which agents work on forks."""

from __future__ import annotations

import click

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.failures import Refused
from braidlog.cli.output import flush, say, write_json, write_line

_PORT_MAX = 65535


@click.command(cls=Verb)
@click.option("--http", metavar="HOST:PORT", help="Serve over HTTP, where each agent shows a token. [default: stdio]")
@click.option("--read-only", is_flag=True, help="Offer no tool that changes anything.")
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(),
    envvar="BRAIDLOG_POLICY",
    help="What agents may do, as TOML. Or set BRAIDLOG_POLICY. [default: a person decides about everything]",
)
@click.option("--agent", metavar="NAME", help="Who the agent is, where no token says so.")
@click.option("--agent-token-file", type=click.Path(), help="A token for the agent's calls, if not the one of `braid`.")
@click.option("--tools", multiple=True, help="Only these, by commas; or, with a minus before each, all but these.")
@click.option("--spark", is_flag=True, help="Let Spark, on this machine, carry out queries that are large.")
@click.option("--tls-cert", type=click.Path(), help="With --http: a certificate, to be reached from other machines.")
@click.option("--tls-key", type=click.Path(), help="Its key.")
@pass_call
def mcp(
    call: Call,
    http: str | None,
    read_only: bool,
    policy_file: str | None,
    agent: str | None,
    agent_token_file: str | None,
    tools: tuple[str, ...],
    spark: bool,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Serve agents by the Model Context Protocol: they read and query logs, and work on forks of their own.

    At stdin and stdout for one agent, unless --http is given. An agent never writes to a root: what it wrote on a fork
    is validated, and promoted as the policy says. Each of its calls is entered in the log braidlog.audit.
    """
    try:
        from braidlog.mcp.catalog import choose
        from braidlog.mcp.opening import Place, house_for_many, house_for_one
        from braidlog.mcp.serving import serve_http, serve_stdio
    except ImportError as error:
        raise Refused(f"braid mcp needs more than is installed ({error}): pip install 'braidlog[mcp]'") from None
    choice = choose(tools, read_only=read_only)
    place = Place(
        url=call.require_url(),
        tls_ca=call.tls_ca,
        token_file=call.token_file,
        policy_file=policy_file,
        spark=spark,
    )
    call.check_place()
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together: give both")
    if http is None:
        if tls_cert is not None:
            raise click.UsageError("--tls-cert is for --http")
        with house_for_one(place, agent, agent_token_file) as house:
            say(f"serving {house.callers.current().name} at {place.url} on stdin and stdout")
            serve_stdio(house, choice)
        return
    if agent is not None or agent_token_file is not None:
        raise click.UsageError("over --http each agent shows a token of its own: leave --agent and its token out")
    with house_for_many(place) as (house, callers):
        pair = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
        serve_http(house, callers, choice, _address(http), lambda url: _tell(call, url), pair)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise click.UsageError(f"--http {text!r} is not HOST:PORT, such as 127.0.0.1:8000")
    return host, int(port)


def _tell(call: Call, url: str) -> None:
    if call.json:
        write_json({"url": url})
    else:
        write_line(f"listening on {url}")
    flush()
