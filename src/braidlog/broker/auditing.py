"""Who decided what: one line on the logger "braidlog.audit" for every promotion, squash, trim and drop, every change of
tokens, and every token that was refused; for those that were not allowed too. No secret ever stands in one.
"""

from __future__ import annotations

import logging
from typing import Final

from braidlog.broker.service import Caller
from braidlog.forest import commands as c
from braidlog.observe.logs import AUDIT, Event

AUDITED: Final = (c.Promote, c.Squash, c.Trim, c.Drop, c.CreateToken, c.RevokeToken)

_log = logging.getLogger(AUDIT)


def tell(what: str, command: c.Command, name: str, result: str, request: str, caller: Caller) -> None:
    """`what` is the command by its name, `name` that of the log."""
    token = command.name if isinstance(command, c.CreateToken | c.RevokeToken) else None
    _log.info(
        Event(
            "audit",
            action=what,
            principal=caller.principal or ("local" if caller.address == "local" else "anonymous"),
            address=caller.address,
            client=caller.name,
            log=getattr(command, "log", None),
            name=name,
            token=token,
            scopes=" ".join(command.scopes) if isinstance(command, c.CreateToken) else None,
            result=result,
            request=request,
        )
    )


def tell_refused(address: str, client: str, why: str) -> None:
    """Somebody was not let in, or not any longer."""
    _log.warning(Event("audit", action="enter", address=address, client=client, result=why))
