"""Metrics as Prometheus reads them: its text format, version 0.0.4. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from braidlog.observe.metrics import Family, Histogram, Number, cumulated

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def render(families: Iterable[Family]) -> bytes:
    """One page with all of them. Families without a series yet are named, so that it is known that they exist."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for values, metric in list(family.series.items()):
            labels = list(zip(family.labels, values, strict=True))
            if isinstance(metric, Histogram):
                lines.extend(_buckets(family.name, labels, metric))
            else:
                lines.append(f"{family.name}{_braces(labels)} {number_text(metric.value)}")
    return ("\n".join(lines) + "\n").encode()


def _buckets(name: str, labels: list[tuple[str, str]], metric: Histogram) -> Iterator[str]:
    total = metric.total
    counts = cumulated(metric.counts[:])
    bounds = [*map(number_text, metric.bounds), "+Inf"]
    for bound, count in zip(bounds, counts, strict=True):
        yield f"{name}_bucket{_braces([*labels, ('le', bound)])} {count}"
    yield f"{name}_sum{_braces(labels)} {number_text(total)}"
    yield f"{name}_count{_braces(labels)} {counts[-1]}"


def number_text(value: Number) -> str:
    """A number as it is written there."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def _braces(labels: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
