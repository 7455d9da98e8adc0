"""Adapters: one function a row form, from a stored row to a problem."""

from collections.abc import Callable, Mapping

from archer.data.adapters import code, maths
from archer.data.rows import Row
from archer.types import Problem

Adapter = Callable[[Row], Problem]

ADAPTERS: Mapping[str, Adapter] = {
    "gsm8k": maths.gsm8k,
    "math": maths.math,
    "deepscaler": maths.deepscaler,
    "skywork-or1": maths.verl,
    "dapo-math": maths.verl,
    "big-math": maths.big_math,
    "verl": maths.verl,
    "trl": maths.trl,
    "deepcoder": code.deepcoder,
    "code-contests": code.code_contests,
    "codeforces": code.codeforces,
    "apps": code.apps,
    "taco": code.apps,
    "livecodebench": code.livecodebench,
    "leetcode": code.leetcode,
    "humaneval": code.humaneval,
    "mbpp": code.mbpp,
}
"""Form to adapter; the form ``archer`` reads its columns from the recipe and stands in no table."""

__all__ = ["ADAPTERS", "Adapter"]
