"""All figures, or those that are named, each in a process of its own: `python -m bench [--quick] [name ...]`."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from bench.harness import parser

FIGURES: Final = (
    "fork_latency",
    "parent_throughput",
    "many_forks",
    "metadata_memory",
    "lookup_depth",
    "promote",
    "deep_and_wide",
    "durable_appends",
    "large_batches",
    "single_append",
    "sequential_read",
    "scaling",
    "reopening",
    "readme",
)
SERVED: Final = ("isolation", "fork_writes", "forks_under_load", "service_costs")  # they start our own servers
SPARK: Final = ("spark_scan", "spark_write", "spark_stream", "spark_isolation")  # they need the extra `spark`
AGENTS: Final = ("agent_analytics", "agent_testing", "agent_supply")  # beside an agent: they need pydantic-ai
SERVICE: Final = ("service_throughput", "service_latency", "service_interference")  # beside other servers: by name only


def main() -> None:
    arguments = parser("Run the figures of braidlog.")
    known = FIGURES + SERVED + SPARK + AGENTS + SERVICE
    default = f"all but {', '.join(SERVICE)} by default"
    arguments.add_argument("figures", nargs="*", metavar="figure", help=f"of {', '.join(known)}; {default}")
    given = arguments.parse_args()
    unknown = [name for name in given.figures if name not in known]
    if unknown:
        arguments.error(f"no figure is named {', '.join(unknown)}: there are {', '.join(known)}")
    passed_on = ["--dir", str(given.dir)]
    passed_on += ["--quick"] if given.quick else []
    passed_on += ["--strict"] if given.strict else []
    passed_on += ["--out", str(given.out)] if given.out else []
    failed = [
        name
        for name in given.figures or FIGURES + SERVED + SPARK + AGENTS
        if subprocess.run([sys.executable, "-m", f"bench.{name}", *passed_on], check=False).returncode
    ]
    if failed:
        print(f"\nmissed a target or failed: {', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
