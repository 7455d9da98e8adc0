"""Each kind of test and each label; both isolation levels where they could differ."""

# One program a line, so that the tables can be read as such.
# ruff: noqa: E501
import sys

import pytest

from archer.configs.code import CodeConfig
from archer.errors import RewardError
from archer.rewards.code import CodeRunner

ECHO = {"type": "stdin", "input": "5\n", "output": "5\n"}
PLUS = {"type": "functional", "fn_name": "add", "input": "[1, 2]\n3", "output": "[4, 5]"}
SOLUTION = "class Solution:\n    def add(self, xs: List[int], n: int) -> List[int]:\n        return {}\n"


def label_of(runner, program, test=ECHO, **options):
    (result,) = runner.run(program, [test], **options).tests
    return result.label


LABELS = [
    ("print(input())", ECHO, "passed"),
    ("print(6)", ECHO, "wrong_answer"),
    ("", ECHO, "wrong_answer"),
    ("1 / 0", ECHO, "runtime_error"),
    ("import sys; print(5); sys.exit(3)", ECHO, "runtime_error"),
    ("import os; print(5, flush=True); os.abort()", ECHO, "runtime_error"),
    ("print(5); exit()", ECHO, "passed"),
    ("while True: pass", ECHO, "time_limit"),
    ("x = bytearray(10**11)", ECHO, "memory_limit"),
    ("x = []\nwhile True: x.append(bytearray(10**6))", ECHO, "memory_limit"),
    ("print('x' * 10**7)", ECHO, "output_limit"),
    ("def f(:", ECHO, "syntax_error"),
    ("print(1)\x00", ECHO, "syntax_error"),
    ("s = '\ud800'", ECHO, "syntax_error"),
    ("(" * 100_000, ECHO, "syntax_error"),
    (SOLUTION.format("[x + n for x in xs]"), PLUS, "passed"),
    (SOLUTION.format("tuple(x + n for x in xs)"), PLUS, "passed"),
    (SOLUTION.format("[x for x in xs]"), PLUS, "wrong_answer"),
    (SOLUTION.format("(x + n for x in xs)"), PLUS, "wrong_answer"),
    (SOLUTION.format("xs + n"), PLUS, "runtime_error"),
    ("def add(xs, n): return [x + n for x in xs]", PLUS, "passed"),
    ("def sub(xs, n): return xs", PLUS, "runtime_error"),
    ("def f(n): return 2 * n", {"type": "assert", "code": "assert f(2) == 4\nassert f(3) == 6"}, "passed"),
    ("def f(n): return 4", {"type": "assert", "code": "assert f(2) == 4\nassert f(3) == 6"}, "wrong_answer"),
    ("def f(n): raise KeyError(n)", {"type": "assert", "code": "assert f(2) == 4"}, "runtime_error"),
    ("def f(n): assert n == 3", {"type": "assert", "code": "assert f(2) == 4"}, "runtime_error"),
    ("def f(n):\n  while n: pass", {"type": "assert", "code": "assert f(2) == 4"}, "time_limit"),
    ("def f(n): return bytearray(10**11)", {"type": "assert", "code": "assert f(2) == 4"}, "memory_limit"),
    ("def f(n) return 4", {"type": "assert", "code": "assert f(2) == 4"}, "syntax_error"),
    ("def g(n): return 4", {"type": "assert", "code": "assert f(2) == 4"}, "runtime_error"),
]


@pytest.mark.parametrize(("program", "test", "label"), LABELS)
def test_label(runner, program, test, label):
    assert label_of(runner, program, test) == label


def test_standard_input_ends_after_the_input(runner):
    (result,) = runner.run("x = input(); y = input(); print(x)", [ECHO]).tests
    assert (result.label, result.detail[:8]) == ("runtime_error", "EOFError")
    assert result.wall_seconds < 1.0


def test_recursion_in_c_is_a_signal_and_not_a_time_limit(runner):
    program = "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return max(map(f, [n - 1]))\nf(500_000)"
    (result,) = runner.run(program, [ECHO]).tests
    assert result.label == "runtime_error"
    # Later interpreters notice the end of the stack themselves.
    assert result.detail.startswith("signal SIGSEGV" if sys.version_info < (3, 12) else "RecursionError")
    # The limit that it set is not there for the next program.
    probe = "import sys; print(5 if sys.getrecursionlimit() == 50_000 else 6)"
    assert label_of(runner, probe) == "passed"


def test_deep_recursion_that_python_can_do_passes(runner):
    program = "def f(n): return n and 1 + f(n - 1)\nprint(5 if f(30_000) == 30_000 else 6)"
    assert label_of(runner, program) == "passed"


def test_numpy_under_a_small_limit(runner):
    assert label_of(runner, "import numpy; print(int(numpy.arange(4).sum()) - 1)") == "passed"


def test_other_packages_are_not_there(runner):
    assert label_of(runner, "import pydantic; print(5)") == "runtime_error"


@pytest.mark.parametrize(
    "program",
    [
        "import sys; print(sys.stdin.read())",
        "import sys; print(sys.stdin.buffer.readline().decode())",
        "print(open(0).read())",
        "import os, io; s = io.BytesIO(os.read(0, os.fstat(0).st_size)); print(s.readline().decode())",
        "import sys; input = sys.stdin.readline; print(int(input()))",
        "print(*map(int, stdin.readline().split()))",
        "import sys\nfor line in sys.stdin: print(line)",
        "import threading\nt = threading.Thread(target=lambda: print(input())); t.start()",
        "import atexit; atexit.register(lambda: print(5))",
        "import sys, io\nold = sys.stdout\nsys.stdout = io.StringIO()\nprint(5)\nold.write(sys.stdout.getvalue())",
        "import os; os.write(1, b'5')",
        "if __name__ == '__main__': print(5)",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'int'\nprint(A(5).x)",
        "from __future__ import annotations\nprint(5)",
        "import pickle\nclass A: x = 5\nprint(pickle.loads(pickle.dumps(A())).x)",
        "print(5, end='')",
        "print('  5  \\n\\n')",
        "print(5.0)",
    ],
)
def test_ways_of_reading_and_printing(runner, program):
    assert label_of(runner, program) == "passed"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        # A built-in name is the program's only where the test can't mean anything else.
        ("def sum(a, b): return a * b", "assert sum(2, 5) == 10"),
        ("def f(x): return x", "assert set(f([1])) == {1}"),
        # The callee's changes to its arguments arrive.
        ("def f(x): x.sort()", "a = [2, 1]\nf(a)\nassert a == [1, 2]"),
        ("def f(x): x[0].append(x); return x", "a = [[]]\nassert f(a) is a and a[0][0] is a"),
        ("def f(d): d['k'] = {1, 2}", "a = {}\nf(a)\nassert a == {'k': {1, 2}}"),
        # Types survive.
        ("def f(): return (1, 2.0, {3}, 'x', None, 1j, b'b', range(3), frozenset({4}))",
         "assert f() == (1, 2.0, {3}, 'x', None, 1j, b'b', range(3), frozenset({4})) and type(f()[1]) is float"),
        ("def f(n): return 2 ** n", "assert f(20_000) == 2 ** 20_000"),
        ("def f(): return float('nan')", "assert f() != f()"),
        ("from fractions import Fraction\ndef f(): return Fraction(1, 3)", "from fractions import Fraction\nassert f() == Fraction(1, 3)"),
        ("from collections import Counter\ndef f(s): return Counter(s)", "assert f('aab') == {'a': 2, 'b': 1}"),
        # Objects that stay with the program.
        ("class Stack:\n  def __init__(self): self.x = []\n  def push(self, v): self.x.append(v)\n  def pop(self): return self.x.pop()\n  def __len__(self): return len(self.x)",
         "s = Stack()\ns.push(3)\ns.push(4)\nassert len(s) == 2 and s.pop() == 4 and s.x == [3] and isinstance(s, Stack)"),
        ("class P:\n  def __init__(self, x): self.x = x\n  def __eq__(self, o): return self.x == o.x", "assert P(1) == P(1)\nassert not P(1) == P(2)"),
        ("def f(n):\n  for i in range(n): yield i", "assert list(f(3)) == [0, 1, 2] and next(f(1)) == 0"),
        ("def f(): return {}.keys()", "assert list(f()) == []"),
        # Functions and exceptions travel both ways.
        ("def f(g, x): return g(g(x))", "assert f(lambda v: v + 1, 3) == 5"),
        ("def f(xs, key): return sorted(xs, key=key)", "assert f([1, -3, 2], key=abs) == [1, 2, -3]"),
        ("def f(x):\n  if x < 0: raise ValueError('no')", "try:\n  f(-1)\n  assert False\nexcept ValueError as e:\n  assert str(e) == 'no'"),
        ("class E(Exception): pass\ndef f(x): raise E('no')", "try:\n  f(-1)\nexcept Exception: pass\nelse: assert False"),
        ("limit = 7", "assert limit == 7"),
        ("import math\ndef f(): return 2", "assert math.sqrt(4) == f()"),
        ("class Solution:\n  def f(self, x): return x + 1", "candidate = Solution().f\nassert candidate(x=1) == 2"),
    ],
)  # fmt: skip
def test_assert_tests_see_what_they_would_in_one_process(best_runner, program, code):
    (result,) = best_runner.run(program, [{"type": "assert", "code": code}]).tests
    assert (result.label, result.detail) == ("passed", "")


LINKED = """
class Node:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
def chain(values):
    head = None
    for value in reversed(values): head = Node(value, head)
    return head
def listed(node):
    values = []
    while node: values.append(node.val); node = node.next
    return values
def reverse(head): ...
"""


@pytest.mark.parametrize("again", [False, True], ids=["class of the setup", "class defined again"])
def test_objects_of_setup_classes_are_copied(best_runner, again):
    program = (
        "class Node:\n    def __init__(self, val=0, next=None): self.val, self.next = val, next\n" * again
    )
    program += "def reverse(head):\n    last = None\n    while head: last = Node(head.val, last); head = head.next\n    return last"
    test = {
        "type": "assert",
        "setup": LINKED,
        "code": "assert listed(reverse(chain(list(range(5000))))) == list(range(5000))[::-1]",
    }
    assert label_of(best_runner, program, test) == "passed"
    wrong = {**test, "code": "assert listed(reverse(chain([1, 2]))) == [1, 2]"}
    assert label_of(best_runner, program, wrong) == "wrong_answer"


def test_setup_of_the_problem_serves_tests_without_one(best_runner):
    test = {"type": "assert", "code": "assert f(double(2)) == 4"}
    assert label_of(best_runner, "def f(x): return x", test, setup="def double(x): return 2 * x") == "passed"


def test_each_test_counts_once_and_the_denominator_is_all_tests(best_runner):
    tests = [{"type": "stdin", "input": str(n), "output": str(n % 3)} for n in range(6)]
    program = "n = int(input())\nprint(n if n < 4 else 9)"
    every = best_runner.run(program, tests, stop_at_failure=False)
    assert [result.label == "passed" for result in every.tests] == [True, True, True, False, False, False]
    assert (every.fraction, every.total) == (0.5, 6)
    first = best_runner.run(program, tests)
    assert (len(first.tests), first.total, first.first_failure[0]) == (4, 6, 3)


@pytest.mark.filterwarnings("ignore:programs of the model run")
def test_one_time_budget_for_all_tests_of_a_sample():
    tests = [{"type": "stdin", "input": "", "output": ""}] * 9
    with CodeRunner(CodeConfig(workers=1, cpu_seconds=0.3, sample_cpu_seconds=0.8)) as runner:
        result = runner.run("while True: pass", tests, stop_at_failure=False)
    assert {one.label for one in result.tests} == {"time_limit"}
    assert result.total == len(result.tests) == 9
    assert sum(one.cpu_seconds for one in result.tests) < 0.8 + 0.3
    assert result.tests[-1].detail == "not run: the sample's time is used up"


@pytest.mark.parametrize(
    "test",
    [
        {"type": "other"},
        {"type": "stdin", "input": "1"},
        {"type": "functional", "fn_name": "f", "input": "[1", "output": "1"},
        {"type": "assert", "code": "assert ("},
        {"type": "assert", "code": "assert f(1)", "setup": "import nothing_of_this_name"},
    ],
)
def test_a_bad_test_says_nothing_about_the_program(best_runner, test):
    result = best_runner.run("def f(x): return x", [test])
    assert not result.scorable
    assert result.tests[0].label == "harness_error"
    assert result.tests[0].detail


def test_equal_programs_get_equal_verdicts():
    program = "import random\nprint(random.random(), list({'a', 'b', 'c', 'd', 'e'}))"
    details = set()
    for _ in range(2):
        with CodeRunner(CodeConfig(workers=1)) as runner:
            details |= {runner.run(program, [ECHO]).tests[0].detail for _ in range(2)}
    assert len(details) == 1


def test_a_closed_runner_refuses():
    runner = CodeRunner(CodeConfig(workers=1))
    runner.close()
    runner.close()
    with pytest.raises(RewardError, match="closed"):
        runner.run("print(1)", [ECHO])
