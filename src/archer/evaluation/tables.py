"""Models side by side: the paper's Tables 1 and 2 from stored evaluations."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from archer.evaluation.statistics import mean_interval


@dataclass(frozen=True, slots=True)
class BenchmarkScore:
    """One model on one benchmark.

    Attributes:
        k: samples a problem.
        metrics: see ``summarise``.
        accuracy: problem id to mean score, scorable problems only.
    """

    k: int
    metrics: Mapping[str, float]
    accuracy: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over problems of the difference to the first model, and the half-width of its 95 % interval."""

    mean: float
    half: float
    problems: int

    @property
    def within_noise(self) -> bool:
        """True when the interval contains 0, or there is none."""
        return not abs(self.mean) > self.half


def paired_difference(first: Mapping[str, float], second: Mapping[str, float]) -> Difference:
    """Second minus first, problem by problem, over the problems that both have."""
    shared = [second[name] - first[name] for name in first if name in second]
    mean, half = mean_interval(shared)
    return Difference(mean, half, len(shared))


class BenchmarkTable:
    """Rows are models, columns are benchmarks; the first model is what the others are compared with."""

    def __init__(self, titles: Mapping[str, str], scores: Mapping[str, Mapping[str, BenchmarkScore]]) -> None:
        """``titles``: benchmark to its title; ``scores``: model, then benchmark, to its score."""
        self.titles, self.scores = titles, scores

    def markdown(self) -> str:
        """avg@K ± half-width and pass@K in percent, the mean of the benchmarks, then paired differences."""
        heads = [f"{title} avg@{self._k(name)} (pass@{self._k(name)})" for name, title in self.titles.items()]
        lines = self._rows(["model", *heads, "mean avg"], self._score_row)
        if len(self.scores) > 1:
            first = next(iter(self.scores))
            lines += ["", f"Difference to {first} in avg@K, problem by problem:", ""]
            lines += self._rows(["model", *self.titles.values()], self._difference_row, skip=1)
        lines += ["", *self._detail_rows(), ""]
        lines += [
            "Percent. ± is the half-width of the 95 % interval over problems (normal). A difference is called noise "
            "when its interval contains 0. An interval of 0 says only that all problems scored the same."
        ]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """One line a model, benchmark and metric."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["model", "benchmark", "metric", "value"])
        for model, row in self.scores.items():
            for name, score in row.items():
                writer.writerows([model, name, metric, value] for metric, value in score.metrics.items())
        return out.getvalue()

    def json(self) -> str:
        """Metrics and differences by model and benchmark."""
        content: dict[str, Any] = {
            model: {
                name: {
                    "k": score.k,
                    "metrics": {m: v if v == v else None for m, v in score.metrics.items()},
                    "difference": self._difference_json(model, name),
                }
                for name, score in row.items()
            }
            for model, row in self.scores.items()
        }
        return json.dumps(content, indent=1) + "\n"

    def difference(self, model: str, name: str) -> Difference | None:
        """Of a model to the first; None for the first itself and where either lacks the benchmark."""
        first = next(iter(self.scores))
        if model == first or name not in self.scores[model] or name not in self.scores[first]:
            return None
        return paired_difference(self.scores[first][name].accuracy, self.scores[model][name].accuracy)

    def _k(self, name: str) -> int:
        return next(row[name].k for row in self.scores.values() if name in row)

    def _rows(self, heads: Sequence[str], make: Any, skip: int = 0) -> list[str]:
        lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
        return lines + ["| " + " | ".join(make(model)) + " |" for model in list(self.scores)[skip:]]

    def _score_row(self, model: str) -> list[str]:
        row = self.scores[model]
        cells, means = [], []
        for name in self.titles:
            score = row.get(name)
            if score is None:
                cells.append("")
                continue
            average = 100 * score.metrics[f"avg@{score.k}"]
            half = 100 * score.metrics[f"avg@{score.k}_interval"]
            best = 100 * score.metrics.get(f"pass@{score.k}", math.nan)
            spread = "" if math.isnan(half) else f" ± {half:.1f}"
            cells.append(f"{average:.1f}{spread} ({best:.1f})")
            means.append(average)
        complete = len(means) == len(self.titles)
        return [model, *cells, f"{math.fsum(means) / len(means):.1f}" if complete else ""]

    def _difference_row(self, model: str) -> list[str]:
        cells = []
        for name in self.titles:
            found = self.difference(model, name)
            if found is None:
                cells.append("")
                continue
            spread = "" if math.isnan(found.half) else f" ± {100 * found.half:.1f}"
            cells.append(f"{100 * found.mean:+.1f}{spread}{' (noise)' if found.within_noise else ''}")
        return [model, *cells]

    def _detail_rows(self) -> list[str]:
        heads = [
            "model",
            "benchmark",
            "problems",
            "truncated",
            "score of the finished",
            "length",
            "repetition",
        ]
        lines = ["| " + " | ".join([*heads, "unscorable", "tokens"]) + " |", "|---|---|" + "---:|" * 7]
        for model, row in self.scores.items():
            for name, score in row.items():
                m = score.metrics
                finished = "" if math.isnan(m["finished_score"]) else f"{100 * m['finished_score']:.1f}"
                cells = [
                    *(
                        model,
                        self.titles[name],
                        str(len(score.accuracy)),
                        f"{100 * m['truncated_share']:.1f}",
                    ),
                    *(finished, f"{m['length_mean']:.0f}", f"{100 * m['repetition']:.2f}"),
                    *(f"{100 * m['unscorable_share']:.1f}", f"{m['tokens']:,.0f}"),
                ]
                lines.append("| " + " | ".join(cells) + " |")
        return lines

    def _difference_json(self, model: str, name: str) -> dict[str, float | int | None] | None:
        found = self.difference(model, name)
        if found is None:
            return None
        half = None if math.isnan(found.half) else found.half
        return {"mean": found.mean, "half_width": half, "problems": found.problems}
