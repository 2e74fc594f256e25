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
    """The machine, the verdicts, and the single numbers."""
    machine = kept[0]["machine"]
    loads = [figure["load"][0] for figure in kept]
    lines = [
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_mib'] // 1024} GiB of memory, "
        f"{machine['kernel']}, {machine['file_system']}, {machine['python']}, pyarrow {machine['pyarrow']}. "
        f"Load average at the end of each figure, all processes together: {min(loads):.1f} to {max(loads):.1f}.",
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


if __name__ == "__main__":
    main()
