"""Uniform spelling before the grammar sees an answer: Unicode, spacing, sizes, colours, thousands.

Every pattern is linear in the length of its input.
"""

from __future__ import annotations

import re

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ",
    "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "±": r"\pm ",
    "∓": r"\mp ", "∈": r"\in ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "°": r"\degree ", "º": r"\degree ",
    "²": "^{2}", "³": "^{3}", "⁴": "^{4}", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "∠": r"\angle ", "△": r"\triangle ", "…": r"\ldots ", "’": "'",
    "′": "'", "‘": "'", "“": "\"", "”": "\"", "€": "", "£": "", "¥": "", "\u00a0": " ", "\u2009": " ",
    "\u202f": " ", "\u200b": "", "\ufeff": "", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ",
    "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "σ": r"\sigma ", "φ": r"\phi ",
    "ω": r"\omega ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "⟨": r"\langle ",
    "⟩": r"\rangle ", "，": ", ", "％": "%",
}  # fmt: skip
_FULL_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_TABLE = str.maketrans({**{chr(k): v for k, v in _FULL_WIDTH.items()}, **_UNICODE})

_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?", ""),
        # Thousands that LaTeX can't confuse with a list: 12{,}345, 12,\!345, 12\,345.
        (r"(?<=\d)(?:\{,\}|,\\!|\\,)\s*(?=\d{3}(?!\d))", ""),
        (r"(?<!\\)\\!", ""),
        (r"\.\.\.", r"\\ldots "),
        (r"(?<!\\)\\[,;:>\s]|~|\\(?:q?quad|enspace|thinspace|medspace|thickspace)(?![A-Za-z])", " "),
        (r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|mathstrut|strut)(?![A-Za-z])", " "),
        (r"\\(?:text)?color\s*\{[^{}]*\}", ""),
        (r"\\[hv]?phantom\s*(?:\{[^{}]*\}|\S)", ""),
        (r"\\hspace\*?\s*\{[^{}]*\}", " "),
        (r"\\[dtcx]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))", r"\\degree "),
        (r"(\\degree )\s*(?:\\(?:text|mathrm)\s*\{\s*[CF]\s*\}|[CF])(?![A-Za-z])", r"\1"),
        (r"\\%", "%"),
        (r"\\\$", r"\\dollar "),
        (r"\$|(?<!\\)\\[()\[\]]", " "),
    )
]
# Escaped once too often, as in JSON. In a matrix a double backslash ends a row.
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z])")
# Python and Markdown habits: x**2, **7**, _7_.
_STARS = re.compile(r"^\*\*(?=[^*])(.*[^*])\*\*$", re.DOTALL)
_SPACED_THOUSANDS = re.compile(r"^([+-]?\d{1,3})((?: \d{3})+)(\.\d+)?$")


def clean(text: str) -> str:
    """The same answer in one spelling; idempotent up to blanks."""
    text = text.translate(_TABLE)
    if r"\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(".,;: \t\n\\")
    if stars := _STARS.match(text):
        text = stars[1].strip()
    text = text.replace("**", "^")
    if spaced := _SPACED_THOUSANDS.match(text):
        text = spaced[1] + spaced[2].replace(" ", "") + (spaced[3] or "")
    return text


_WORDS = re.compile(r"[^\W\d_]+|\d+(?:[.,:]\d+)*", re.ASCII)


def words_of(text: str) -> str:
    """Lower-case words and numbers only: what two texts are compared by."""
    return " ".join(_WORDS.findall(text.lower().replace("'", "")))
