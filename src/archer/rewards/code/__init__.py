"""Runs a model's programs against tests, in a sandbox; ``docs/SANDBOX.md`` says what it holds and how."""

from archer.rewards.code.extract import extract_program
from archer.rewards.code.isolation import IsolationReport, probe_isolation
from archer.rewards.code.judging import Label, TestResult
from archer.rewards.code.runner import CodeResult, CodeRunner
from archer.rewards.code.scorer import CodeScorer, build_code_scorer

__all__ = [
    "CodeResult",
    "CodeRunner",
    "CodeScorer",
    "IsolationReport",
    "Label",
    "TestResult",
    "build_code_scorer",
    "extract_program",
    "probe_isolation",
]
