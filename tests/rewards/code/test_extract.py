"""Where the program is in a response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archer.rewards.code import extract_program

CODE = "def f():\n    return 1"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"```python\n{CODE}\n```", CODE),
        (f"Here:\n```py\n{CODE}\n```\nDone.", CODE),
        (f"```Python3\n{CODE}\n```", CODE),
        (f"~~~python\n{CODE}\n~~~", CODE),
        (f"```\n{CODE}\n```", CODE),
        # The last complete block, and never the text between two.
        (f"```python\nx = 1\n```\nNo, better:\n```python\n{CODE}\n```\nDone.", CODE),
        (f"```python\n{CODE}\n```\nExample:\n```\n>>> f()\n```", CODE),
        (f"```python\n{CODE}\n```\nRun it:\n```bash\npython x.py\n```", CODE),
        (f"```python\n{CODE}\n```\nNow I improve it:\n```python\ndef g(", CODE),
        # A closing fence without an opening, an opening without a closing.
        (f"{CODE}\n```", CODE),
        (f"{CODE}\n```\nThis works since f returns 1.", CODE),
        (f"The answer:\n```python\n{CODE}", CODE),
        (f"The answer:\n```\n{CODE}", CODE),
        (f"```python\nx = (\n```python\n{CODE}\n```", CODE),
        # Longer fences may hold shorter ones.
        (f"````python\n{CODE}\n```\n````", f"{CODE}\n```"),
        # Indented, as in a list.
        ("1. This:\n   ```python\n   def f():\n       return 1\n   ```", CODE),
        (f"```python\r\n{CODE}\r\n```".replace("\n    ", "\r\n    "), CODE),
        (CODE, CODE),
        # Only what follows the thinking.
        (f"<think>\n```python\nx = 1\n```\n</think>\n```python\n{CODE}\n```", CODE),
        ("<think>\n```python\nx = 1\n```\n</think>\nI give up.", None),
        ("<think>\n```python\nx = 1\n```", "x = 1"),
        ("I can't do this.", None),
        ("", None),
        ("```python\n```", None),
        ("```bash\nls\n```", None),
        ("```cpp\nint main() { return 0; }\n```", None),
        ("```", None),
    ],
)
def test_extraction(text, program):
    assert extract_program(text) == program


FRAGMENTS = st.sampled_from(
    [
        "```",
        "```python",
        "~~~",
        "````",
        "</think>",
        "<think>",
        "def f():",
        "    x = 1",
        "text",
        "",
        " ```",
        "\r",
        "`",
    ]
)


@given(st.lists(FRAGMENTS).map("\n".join) | st.text())
def test_never_raises_and_never_holds_what_was_not_there(text):
    program = extract_program(text)
    assert extract_program(text) == program
    if program is not None:
        assert program.strip()
        lines = {line.strip() for line in text.replace("\r\n", "\n").split("\n")}
        assert all(line.strip() in lines for line in program.split("\n"))


def test_long_texts_are_quick_enough():
    # Each of these would take hours where the time grows with the square of the length.
    blanks = " " * 200_000
    for text in (
        f"import a{blanks};",
        f"```{blanks}`",
        f"{blanks}x",
        "`" * 200_000 + "x`",
        "def f" + ":  " * 10**5 + "x",
    ):
        extract_program(text)
    for text in ("```\n" * 200_000, "x" * 10**6, "a.b[c], " * 10**5, "if " * 10**5, "```python\nx\n" * 10**5):
        extract_program(text)
