"""Units of measure: which words are units, and when two of them can be the same quantity."""

from __future__ import annotations

import re
from fractions import Fraction

from archer.rewards.math.syntax import words

# dimension -> {unit: size in the first unit of its dimension}
_TABLE: dict[str, dict[str, Fraction]] = {
    "length": {
        "mm": Fraction(1), "cm": Fraction(10), "dm": Fraction(100), "m": Fraction(1000),
        "km": Fraction(10**6),
        "inch": Fraction(254, 10), "foot": Fraction(3048, 10), "yard": Fraction(9144, 10),
        "mile": Fraction(1609344),
    },
    "time": {
        "second": Fraction(1), "minute": Fraction(60), "hour": Fraction(3600), "day": Fraction(86400),
        "week": Fraction(604800),
    },
    "mass": {
        "mg": Fraction(1), "g": Fraction(1000), "kg": Fraction(10**6), "ounce": Fraction("28349.523125"),
        "pound": Fraction("453592.37"),
    },
    "volume": {"ml": Fraction(1), "l": Fraction(1000)},
    "money": {"cent": Fraction(1), "dollar": Fraction(100)},
    "half of the day am": {"am": Fraction(1)},
    "half of the day pm": {"pm": Fraction(1)},
    "euro": {"euro": Fraction(1)},
    "speed miles": {"mph": Fraction(1)},
    "speed km": {"kph": Fraction(1)},
}  # fmt: skip
_ALIASES = {
    "millimeter": "mm", "millimetre": "mm", "centimeter": "cm", "centimetre": "cm", "decimeter": "dm",
    "meter": "m", "metre": "m", "kilometer": "km", "kilometre": "km", "inche": "inch", "in": "inch",
    "feet": "foot", "ft": "foot", "yd": "yard", "mi": "mile", "s": "second", "sec": "second", "min": "minute",
    "h": "hour", "hr": "hour", "milligram": "mg", "gram": "g", "kilogram": "kg", "oz": "ounce", "lb": "pound",
    "milliliter": "ml", "millilitre": "ml", "liter": "l", "litre": "l", "usd": "dollar", "buck": "dollar",
    "eur": "euro", "kmh": "kph",
}  # fmt: skip
_SIZES = {unit: (dimension, size) for dimension, sizes in _TABLE.items() for unit, size in sizes.items()}
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
# Words that make a claim about the number instead of naming what it counts.
_CLAIMS = words(
    "is are was be not no isn't wrong incorrect correct true false if when then than or and but either "
    "neither except unless maybe perhaps probably about approximately around more less least most only "
    "hence thus so because where since minus plus times over it this that"
)
_MAX_WORDS = 4
_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")

Unit = tuple[str, Fraction]
"""Dimension (with its power) and size."""


def _canonical(word: str) -> str:
    word = word.lower()
    for candidate in (word, word.removesuffix("s"), word.removesuffix("es")):
        candidate = _ALIASES.get(candidate, candidate)
        if candidate in _SIZES:
            return candidate
    return word


def is_unit_word(word: str) -> bool:
    """True for a unit of the table, in any of its spellings."""
    return _canonical(word) in _SIZES


def is_description(words: str) -> bool:
    """True if ``words`` can stand after a number as its unit or as what it counts."""
    found = _WORD.findall(words.lower())
    return 0 < len(found) <= _MAX_WORDS and not _CLAIMS & set(found) and not any(c.isdigit() for c in words)


def unit_of(words: str) -> Unit | None:
    """The unit that ``words`` (such as ``"square feet"``, ``"cm ^ 2"``, ``"p.m."``) name; ``None`` if
    unknown."""
    text = words.lower().replace("p.m.", "pm").replace("a.m.", "am").replace("p.m", "pm").replace("a.m", "am")
    power = 1
    if match := re.search(r"\^\s*([23])\s*$", text):
        power, text = int(match[1]), text[: match.start()]
    found: list[str] = []
    for word in _WORD.findall(text):
        if word in _POWERS:
            power = _POWERS[word]
        else:
            found.append(_canonical(word))
    if len(found) != 1 or found[0] not in _SIZES:
        return None
    dimension, size = _SIZES[found[0]]
    return f"{dimension}^{power}", size**power
