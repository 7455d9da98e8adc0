"""The data card: what a data set holds, where it came from and what was taken out, as JSON and markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from archer import __version__
from archer.configs.data_recipe import DataRecipe
from archer.data.records import ProblemFile
from archer.data.runner import StageReport


def make_card(
    recipe: DataRecipe,
    origins: tuple[Mapping[str, Mapping[str, Any]], Mapping[str, Mapping[str, Any]]],
    reports: Sequence[StageReport],
    result: ProblemFile,
    sha256: str,
    files: Mapping[str, str],
) -> dict[str, Any]:
    """Everything the card says. It holds no time or path, so equal inputs give an equal card.

    ``origins`` are those of the sources and of the benchmarks.
    """
    by_source: Counter[str] = Counter()
    by_domain: Counter[str] = Counter()
    for problem in result:
        by_source[problem.source] += 1
        by_domain[problem.domain] += 1
    raw = reports[0].sources
    return {
        "name": recipe.name,
        "description": recipe.description,
        "made_with": f"archer {__version__}",
        "problems": reports[-1].kept,
        "sha256": sha256,
        "files": dict(files),
        "by_source": dict(by_source),
        "by_domain": dict(by_domain),
        "sources": [
            {
                "name": name,
                "form": source.form,
                "licence": source.licence,
                **origins[0][name],
                "rows": raw.get(name, {}).get("in", 0),
                "in_result": by_source[name],
            }
            for name, source in recipe.sources.items()
        ],
        "benchmarks": [
            {"name": name, "licence": benchmark.licence, **origins[1][name]}
            for name, benchmark in recipe.benchmarks.items()
        ],
        "stages": list(_stages(recipe, reports)),
    }


def _stages(recipe: DataRecipe, reports: Iterable[StageReport]) -> Iterator[dict[str, Any]]:
    by_name = {report.name: report for report in reports}
    settings: dict[str, Any] = {"sources": {"prefer": list(recipe.prefer)}}
    settings |= {
        name: stage.model_dump(mode="json", exclude={"cache"}) for name, stage in recipe.stages.items()
    }
    for name, values in settings.items():
        if name not in by_name:
            yield {"name": name, "kind": values["kind"], "left_out": True, "settings": values}
            continue
        report = by_name[name]
        yield {
            "name": name,
            "kind": report.kind,
            "left_out": False,
            "settings": values,
            "in": report.seen,
            "kept": report.kept,
            "dropped": report.dropped,
            "notes": report.notes,
            "sources": report.sources,
            "samples": report.samples,
        }


def markdown(card: Mapping[str, Any]) -> str:
    """The card for a reader."""
    lines = [f"# {card['name']}", "", card["description"].strip(), "", f"{card['problems']} problems."]
    lines += [f"sha256 of the problems: `{card['sha256']}`. Made with {card['made_with']}.", ""]
    lines += ["## Sources", ""]
    lines += _table(
        ("source", "origin", "form", "licence", "rows", "in the result"),
        [
            (s["name"], _origin(s), s["form"], s["licence"], s["rows"], s["in_result"])
            for s in card["sources"]
        ],
    )
    if card["benchmarks"]:
        lines += [
            "",
            "Kept out: " + ", ".join(f"{b['name']} ({_origin(b)})" for b in card["benchmarks"]) + ".",
        ]
    lines += ["", "## Stages", ""]
    lines += _table(("stage", "in", "kept", "dropped", "noted"), [_stage_row(s) for s in card["stages"]])
    lines += ["", "### Kept by source", ""]
    names = [source["name"] for source in card["sources"]]
    ran = [stage for stage in card["stages"] if not stage["left_out"]]
    lines += _table(
        ("stage", *names),
        [(s["name"], *(s["sources"].get(name, {}).get("kept", 0) for name in names)) for s in ran],
    )
    lines += ["", "### Settings", ""]
    lines += [f"- {stage['name']}: `{_settings(stage['settings'])}`" for stage in card["stages"]]
    lines += ["", "## Samples of what was dropped or noted"]
    for stage in ran:
        for reason, entries in stage["samples"].items():
            lines += ["", f"**{stage['name']}: {reason}**", ""]
            lines += [_sample(entry) for entry in entries]
    lines += ["", "## Files", ""]
    lines += [f"- `{name}`: sha256 `{digest}`" for name, digest in card["files"].items()]
    return "\n".join(lines) + "\n"


def _stage_row(stage: Mapping[str, Any]) -> tuple[Any, ...]:
    if stage["left_out"]:
        return (stage["name"], "left out", "", "", "")
    counts = [
        ", ".join(f"{name} {count}" for name, count in stage[key].items()) for key in ("dropped", "notes")
    ]
    return (stage["name"], stage["in"], stage["kept"], *counts)


def _origin(entry: Mapping[str, Any]) -> str:
    if "path" in entry:
        return f"{entry['path']}, sha256 {entry['sha256'][:12]}"
    parts = [entry["hub"], entry["config"], entry["split"], entry["revision"] or "revision not pinned"]
    return ", ".join(part for part in parts if part)


def _settings(values: Mapping[str, Any]) -> str:
    hidden = ("kind", "enabled")
    return ", ".join(f"{key}={value}" for key, value in values.items() if key not in hidden).replace(
        "\n", "\\n"
    )


def _sample(entry: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in entry.items() if key not in ("id", "source", "prompt", "kind")}
    rest = "; ".join(f"{key}: {_inline(value)}" for key, value in shown.items() if value not in ("", None))
    return f"- {entry['id']}: {_inline(entry['prompt'])}" + (f" ({rest})" if rest else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(_inline(cell) for cell in row) + " |" for row in rows]


def _inline(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
