"""A small, strict reader of Prometheus' text format, for tests: whatever breaks its rules is an AssertionError."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

_LABELS = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN")

Labels = tuple[tuple[str, str], ...]


@dataclass
class Metric:
    help: str
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)  # (name, labels) -> value

    def value(self, suffix: str = "", **labels: str) -> float:
        [found] = [
            value for (name, has), value in self.samples.items() if name.endswith(suffix) and dict(has) == labels
        ]
        return found


def parse(page: bytes) -> dict[str, Metric]:
    text = page.decode("utf-8")
    assert text.endswith("\n")
    metrics: dict[str, Metric] = {}
    current = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current, _, told = line.removeprefix("# HELP ").partition(" ")
            assert current not in metrics, "a metric's lines stand together"
            metrics[current] = Metric(_unescape(told, quotes=False))
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == current
            assert not metrics[name].samples
            assert kind in ("counter", "gauge", "histogram")
            metrics[name].kind = kind
        else:
            _take(line, metrics[current], current)
    for name, metric in metrics.items():
        _check(name, metric)
    return metrics


def _take(line: str, metric: Metric, family: str) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, line
    name, inside, number = match.groups()
    assert name.removeprefix(family) in (("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)), line
    assert _NUMBER.fullmatch(number), line
    labels = _labels(inside or "")
    assert (name, labels) not in metric.samples, line
    metric.samples[name, labels] = float(number.replace("Inf", "inf"))


def _labels(inside: str) -> Labels:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(inside):
        match = _LABELS.match(inside, at)
        assert match is not None, inside
        found.append((match[1], _unescape(match[2], quotes=True)))
        at = match.end()
    assert len({name for name, _ in found}) == len(found), inside
    return tuple(found)


def _unescape(text: str, *, quotes: bool) -> str:
    names = {"\\\\": "\\", "\\n": "\n"} | ({'\\"': '"'} if quotes else {})
    return re.sub(r"\\.", lambda match: names[match[0]], text)


def _check(name: str, metric: Metric) -> None:
    assert metric.kind
    assert metric.help
    if metric.kind == "counter":
        assert name.endswith("_total")
        assert all(value >= 0 for value in metric.samples.values())
    if metric.kind != "histogram":
        return
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in metric.samples.items():
        if sample.endswith("_bucket"):
            bound = float(dict(labels)["le"].replace("Inf", "inf"))
            series.setdefault(tuple(pair for pair in labels if pair[0] != "le"), []).append((bound, value))
    for labels, buckets in series.items():
        assert [bound for bound, _ in buckets] == sorted({bound for bound, _ in buckets})
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert math.isinf(buckets[-1][0])
        assert metric.samples[f"{name}_count", labels] == buckets[-1][1]
        assert f"{name}_sum" in {sample for sample, has in metric.samples if has == labels}
