"""Put the kept results into docs/benchmarks.md: `python -m bench.report`. Nothing is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from bench.__main__ import AGENTS, FIGURES, SERVED, SERVICE, SPARK
from bench.harness import RESULTS

PAGE: Final = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN: Final = "<!-- results: written by `python -m bench.report` -->"
END: Final = "<!-- end of results -->"


def main() -> None:
    files = [RESULTS / f"{name}.json" for name in FIGURES + SERVED + SPARK + AGENTS + SERVICE]
    kept = [json.loads(file.read_text()) for file in files if file.exists()]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{_results(kept)}\n{END}{after}")


def _results(kept: list[dict[str, Any]]) -> str:
    """The machines, the verdicts, and the single numbers."""
    loads = [figure["load"][0] for figure in kept]
    lines = [
        "Each figure is of one virtual machine, but not all are of the same. Load average at the end of each, all "
        f"processes together: {min(loads):.1f} to {max(loads):.1f}.",
        "",
        *(f"- {machine}: {', '.join(names)}" for machine, names in _by_machine(kept).items()),
        "",
        "| figure | target | wanted | measured | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for figure in kept:
        for target in figure["targets"]:
            sign = "at least" if target["at_least"] else "at most"
            verdict = "pass" if target["met"] else "**miss**"
            lines.append(
                f"| [{figure['name']}](#{figure['name']}) | {target['claim']} | {sign} {target['bound']:g} | "
                f"{target['measured']:.3g} | {verdict} |"
            )
    lines += ["", "| figure | beside that | measured |", "| --- | --- | --- |"]
    lines += [
        f"| {figure['name']} | {name} | {value:,.3g} |" for figure in kept for name, value in figure["numbers"].items()
    ]
    return "\n".join(lines) + "\n"


def _by_machine(kept: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The figures that each machine was taken for, in their order."""
    found: dict[str, list[str]] = {}
    for figure in kept:
        machine = figure["machine"]
        described = (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mib'] // 1024} GiB of memory, "
            f"{machine['kernel']}, {machine['file_system']}, {machine['python']}, pyarrow {machine['pyarrow']}"
        )
        found.setdefault(described, []).append(figure["name"])
    return found


if __name__ == "__main__":
    main()
