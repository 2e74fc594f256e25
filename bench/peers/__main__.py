"""Install the servers that the figures compare with, and say what is missing: `python -m bench.peers`."""

from __future__ import annotations

import sys

from bench.peers import line_up
from bench.peers.servers import Placement, Unavailable


def main() -> None:
    missing = 0
    for system in line_up.chosen():
        try:
            print(f"{system.name}: {system.install()}")
        except Unavailable as why:
            missing += 1
            print(f"{system.name} cannot be measured here: {why}")
    print(Placement.chosen().describe())
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
