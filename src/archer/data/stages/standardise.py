"""Code problems in one of two forms: a program from stdin to stdout, or a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from archer.configs.data_recipe import StandardiseStage
from archer.data.adapters.asserts import as_function_test
from archer.data.fields import prompt_text
from archer.data.outcomes import Outcome, StageContext, StageResult
from archer.data.records import ProblemFile
from archer.types import Problem


def standardise(problems: ProblemFile, stage: StandardiseStage, context: StageContext) -> StageResult:
    """Convert tests, wrap statements, and drop what fits no allowed form. Other domains pass unchanged."""
    for problem in problems:
        yield _standard(problem, stage) if problem.tests else Outcome(problem)


def _standard(problem: Problem, stage: StandardiseStage) -> Outcome:
    tests = list(problem.tests)
    if stage.convert_asserts:
        tests = _converted(tests)
    forms = sorted({test["type"] for test in tests})
    if len(forms) > 1:
        return Outcome(problem, "tests of several forms", ", ".join(forms))
    if forms[0] not in stage.forms:
        return Outcome(problem, f"{forms[0]} tests", f"allowed: {', '.join(stage.forms)}")
    names = {test.get("fn_name") for test in tests}
    if len(names) > 1:
        return Outcome(problem, "tests of several functions", ", ".join(sorted(map(str, names))))
    if forms[0] == "assert":
        return Outcome(problem)
    template = stage.stdin_template if forms[0] == "stdin" else stage.function_template
    return Outcome(replace(problem, prompt=_wrapped(problem, template, tests[0]), tests=tuple(tests)))


def _converted(tests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    converted = [as_function_test(test["code"]) if test["type"] == "assert" else test for test in tests]
    return tests if any(test is None for test in converted) else [test for test in converted if test]


def _wrapped(problem: Problem, template: str, test: Mapping[str, Any]) -> str:
    starter = str(problem.meta.get("starter_code", ""))
    slots = {"{fn_name}": test.get("fn_name", ""), "{starter_code}": starter}
    for slot, value in slots.items():
        template = template.replace(slot, value)
    before, _, after = template.rstrip().partition("{prompt}")
    return f"{before}{prompt_text(problem.prompt).strip()}{after}"
