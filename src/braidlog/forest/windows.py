"""What is kept of the requests of clients that may ask again after a lost connection.

A request id is the client's id and a number that ascends. The forest remembers the last outcomes of everybody; what it
forgets of a client that has a *window* moves there, and stays until the client settles it by raising its floor. So a
request that is sent again either is recalled, or can be told from one that was never applied, or is answered as
unknown: it is never applied twice.

Windows are bounded in number (the client that was silent longest loses its own) and in outcomes (the lowest numbers go
first). Whatever is lost so leaves a mark, and what a mark makes uncertain is unknown. While no client has a window
there is nothing to do: what was forgotten until then is told from how much was applied. A request that was first sent a
short while ago needs no window at all: everybody's last outcomes tell whether it was applied.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

from braidlog import limits
from braidlog.errors import InvalidArgument, OutcomeUnknown
from braidlog.forest.commands import NONE, Result
from braidlog.forest.log import Outcome


class Window:
    """The outcomes of one client, by number, that the forest does not remember elsewhere.

    `floor`: below it all is settled. `dropped`: the highest number that did not fit. `whole_since`: of requests sent by
    somebody who had seen the forest at this many commands, nothing else was lost.
    """

    __slots__ = ("dropped", "floor", "order", "outcomes", "whole_since")

    def __init__(self, whole_since: int) -> None:
        self.floor = 0
        self.dropped = NONE
        self.whole_since = whole_since
        self.outcomes: dict[int, Outcome | Result] = {}
        self.order: list[int] = []  # a heap of the same numbers

    def keep(self, number: int, outcome: Outcome | Result) -> None:
        if number < self.floor:
            return
        if number not in self.outcomes:
            heapq.heappush(self.order, number)
        self.outcomes[number] = outcome
        if len(self.order) > limits.CLIENT_OUTCOMES_KEPT_MAX:
            self.dropped = max(self.dropped, self._drop_lowest())

    def settle(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        while self.order and self.order[0] < self.floor:
            self._drop_lowest()

    def _drop_lowest(self) -> int:
        number = heapq.heappop(self.order)
        del self.outcomes[number]
        return number


class Windows:
    """All windows, by client, and what was lost for lack of one."""

    __slots__ = ("by_client", "lost_at", "outcomes_forgotten_upto", "windows_forgotten_at")

    def __init__(self) -> None:
        self.by_client: OrderedDict[bytes, Window] = OrderedDict()  # the latest to be heard stands last
        self.windows_forgotten_at = NONE  # how many commands were applied when that last happened
        self.lost_at = NONE  # what was applied later is remembered by all, as long as it is young
        self.outcomes_forgotten_upto = NONE  # what was applied later than this was never forgotten for lack of a window

    def settle(self, client: bytes, floor: int, applied: int) -> int:
        """The client's answers below `floor` are settled; from now on it has a window. Answers its floor."""
        if len(client) != limits.CLIENT_ID_BYTES or floor < 0:
            raise InvalidArgument(
                f"a client of {len(client)} bytes cannot settle below {floor}: a client's id has "
                f"{limits.CLIENT_ID_BYTES} bytes, and numbers begin at 0"
            )
        window = self.by_client.get(client)
        if window is None:
            # What it did before is still remembered by all, unless something was forgotten since.
            lost = self._lost_upto(applied)
            if not self.by_client:
                self.outcomes_forgotten_upto = lost
            window = self.by_client[client] = Window(lost + 1)
            if len(self.by_client) > limits.CLIENTS_KEPT_MAX:
                self.by_client.popitem(last=False)
                self.windows_forgotten_at = applied
        else:
            self.by_client.move_to_end(client)
        window.settle(floor)
        return window.floor

    def heard(self, request: bytes) -> None:
        """A client asked for something: its window, if it has one, is the last to go."""
        client = request[: limits.CLIENT_ID_BYTES]
        if len(request) == limits.REQUEST_ID_BYTES and client in self.by_client:
            self.by_client.move_to_end(client)

    def keep(self, request: bytes, outcome: Outcome | Result, upto: int) -> None:
        """The forest forgets an outcome, one of the first `upto` commands'; it is kept if its client may ask for it."""
        self.lost_at = max(self.lost_at, upto)
        window = self._of(request)
        if window is None:
            self.outcomes_forgotten_upto = max(self.outcomes_forgotten_upto, upto)
        else:
            window.keep(number_of(request), outcome)

    def recall(self, request: bytes) -> Outcome | Result | None:
        window = self._of(request)
        return window.outcomes.get(number_of(request)) if window is not None else None

    def check_new(self, request: bytes, since: int, applied: int) -> None:
        """Raise unless a request that nobody recalls was certainly never applied, though it was sent before."""
        if len(request) != limits.REQUEST_ID_BYTES:
            raise InvalidArgument(
                f"request {request.hex()} has {len(request)} bytes and cannot be sent again: one that can has "
                f"{limits.REQUEST_ID_BYTES}"
            )
        window = self._of(request)
        if window is None:
            certain = since > self._lost_upto(applied)
        else:
            certain = number_of(request) >= window.floor and number_of(request) > window.dropped
            certain = certain and since >= window.whole_since
        # Had it been applied, then by one of the commands since then. Each of those put one outcome at most among
        # those that all remember, where the oldest go first: while the commands are no more than the outcomes kept
        # there, its own would still be found, whether its client settled it, and has a window, or not. Only what a
        # hold withheld is kept elsewhere, and may go from there at any age; but that moves `lost_at`.
        kept = min(limits.YOUNG_COMMANDS, limits.OUTCOMES_KEPT_MAX)
        certain = certain or (applied - since <= kept and since > self.lost_at)
        certain = certain and since <= applied  # nobody has seen what was not there
        if not certain:
            raise OutcomeUnknown(
                f"what became of request {request.hex()} is remembered no more: look whether it took effect before "
                "doing it anew",
                request_id=request.hex(),
            )

    def _of(self, request: bytes) -> Window | None:
        if len(request) != limits.REQUEST_ID_BYTES:
            return None
        return self.by_client.get(request[: limits.CLIENT_ID_BYTES])

    def _lost_upto(self, applied: int) -> int:
        """Nothing was lost of what a client without a window did after so many commands."""
        upto = max(self.windows_forgotten_at, self.outcomes_forgotten_upto)
        if not self.by_client:  # nobody kept count
            upto = max(upto, applied - limits.OUTCOMES_KEPT_MAX)
        return upto


def number_of(request: bytes) -> int:
    return int.from_bytes(request[limits.CLIENT_ID_BYTES :], "big")
