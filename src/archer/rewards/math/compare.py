"""Comparison of two parsed answers by their structure. docs/GRADING.md states every rule in words.

The first argument is always the gold answer. Nothing here needs computer algebra; what the rules can't decide
comes back with ``equal=None``.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

from archer.rewards.math.cleaning import words_of
from archer.rewards.math.exact import is_literal, rational
from archer.rewards.math.leaf import same_value
from archer.rewards.math.match import Match, all_of, in_any_order, in_order
from archer.rewards.math.regions import is_region, region, same_region
from archer.rewards.math.relations import Labelled, approximation, labelled, same_equation
from archer.rewards.math.syntax import HUNDRED, Node, number
from archer.rewards.math.units import unit_of

_CHOICES = frozenset("ABCDEFGHIJ")
_COUNTING = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_NUMBER_WORDS = {word: str(value) for value, word in enumerate(_COUNTING.split())}
_RADIANS = Node("div", (Node("constant", text="pi"), number("180")))


def compare(gold: Node, pred: Node) -> Match:
    """Whether ``pred`` answers what ``gold`` answers."""
    if gold == pred:
        return Match(True, "identical")
    gold, pred = _unwrapped(gold), _unwrapped(pred)
    if is_region(gold) or is_region(pred):
        return _compare_regions(gold, pred)
    golds, preds = _elements(gold), _elements(pred)
    if golds is not None or preds is not None:
        return _compare_lists(gold, golds, pred, preds)
    if gold.op in ("brackets", "matrix") or pred.op in ("brackets", "matrix"):
        return _compare_tuples(gold, pred)
    return _compare_single(gold, pred)


def _unwrapped(node: Node) -> Node:
    """Without the braces of a one-element set, and without ``x \\in`` before a set."""
    while True:
        if node.op == "brackets" and node.text == "{}" and len(node.args) == 1:
            node = node.args[0]
        elif node.op == "relation" and node.text == "in":
            node = node.args[1]
        else:
            return node


def _compare_regions(gold: Node, pred: Node) -> Match:
    gold_pieces, pred_pieces = region(_unlabelled(gold)), region(_unlabelled(pred))
    if gold_pieces is None or pred_pieces is None:
        return same_equation(gold, pred) if gold.op == pred.op == "relation" else Match(False, "not_a_set")
    return same_region(gold_pieces, pred_pieces, compare)


def _unlabelled(node: Node) -> Node:
    found = labelled(node)
    return found.value if isinstance(found, Labelled) and found.name is not None else node


# ---------------------------------------------------------------------- lists and tuples


def _elements(node: Node) -> list[Node] | None:
    """The elements of a list, a set or a plus-minus pair; ``None`` for anything else."""
    if node.op == "list" or (node.op == "brackets" and node.text == "{}"):
        return [value for item in node.args for value in (_elements(item) or [item])]
    if any(part.op == "plusminus" for part in node.walk()):
        return [_with_sign(node, True), _with_sign(node, False)]
    return None


def _with_sign(node: Node, upper: bool) -> Node:
    args = tuple(_with_sign(arg, upper) for arg in node.args)
    if node.op != "plusminus":
        return Node(node.op, args, node.text)
    right = args[-1] if upper == (node.text == r"\pm") else Node("neg", (args[-1],))
    return right if len(args) == 1 else Node("add", (args[0], right))


def _compare_lists(gold: Node, golds: list[Node] | None, pred: Node, preds: list[Node] | None) -> Match:
    # Unbracketed "1, 4" may stand for the tuple (1, 4), in that order only.
    if golds is None and gold.op == "brackets" and gold.text in ("()", "<>") and pred.op == "list":
        return in_order(gold.args, pred.args, compare, "tuple")
    if preds is None and pred.op == "brackets" and pred.text in ("()", "<>") and gold.op == "list":
        return in_order(gold.args, pred.args, compare, "tuple")
    golds = [gold] if golds is None else golds
    preds = [pred] if preds is None else preds
    if len(golds) != len(preds):
        return Match(False, "count")
    if _ordered(golds) or _ordered(preds):
        return in_order(golds, preds, compare, "sequence")
    return _compare_named(golds, preds) or in_any_order(golds, preds, compare, "list")


def _ordered(items: list[Node]) -> bool:
    """Sequences with dots and lists of words keep their order."""
    return any(item.op == "dots" or (item.op == "text" and len(item.text) > 1) for item in items)


def _compare_named(golds: list[Node], preds: list[Node]) -> Match | None:
    """``a=1, b=2``: by name where the prediction names them too, else in the order of the gold answer."""
    gold_names, pred_names = _names(golds), _names(preds)
    if gold_names is None:
        return None
    if pred_names is None:
        return in_order(golds, preds, compare, "named")
    if gold_names.keys() != pred_names.keys():
        return Match(False, "names")
    return all_of((compare(gold_names[name], pred_names[name]) for name in gold_names), "named")


def _names(items: list[Node]) -> dict[Node, Node] | None:
    """Value by name, if every item has a name of its own."""
    found = [labelled(item) for item in items]
    names = {item.name: item.value for item in found if isinstance(item, Labelled) and item.name is not None}
    return {k: v for k, v in names.items() if k is not None} if len(names) == len(items) else None


def _compare_tuples(gold: Node, pred: Node) -> Match:
    gold, pred = _unlabelled(gold), _unlabelled(pred)
    if gold.op == pred.op == "matrix":
        if gold.text != pred.text:
            return Match(False, "shape")
        return in_order(gold.args, pred.args, compare, "matrix")
    kinds = {_tuple_kind(gold), _tuple_kind(pred)}
    if None in kinds or len(kinds) > 1:
        return Match(False, "structure")
    return in_order(gold.args, pred.args, compare, "tuple")


def _tuple_kind(node: Node) -> str | None:
    """Points, vectors and columns are one kind; closed intervals another."""
    if node.op == "matrix":
        return "point" if node.text.endswith("|1") else None
    if node.op != "brackets":
        return None
    return {"()": "point", "<>": "point", "[]": "closed"}.get(node.text)


# ---------------------------------------------------------------------- single answers


def _compare_single(gold: Node, pred: Node) -> Match:
    exact_gold, exact_pred = approximation(gold, gold), approximation(pred, gold)
    if isinstance(exact_pred, Match):
        return exact_pred
    if exact_pred is not None or isinstance(exact_gold, Node):
        return compare(exact_gold if isinstance(exact_gold, Node) else gold, exact_pred or pred)
    gold_is, pred_is = labelled(gold), labelled(pred)
    if isinstance(pred_is, Match):
        return pred_is
    if isinstance(gold_is, Match):
        return Match(None, "gold_relation")
    if gold_is.relation or pred_is.relation:
        return _compare_relations(gold, gold_is, pred, pred_is)
    if gold_is.name is not None and pred_is.name is not None and gold_is.name != pred_is.name:
        return same_equation(gold, pred)
    if gold_is.value is gold and pred_is.value is pred:
        return _compare_quantities(gold, pred)
    return compare(gold_is.value, pred_is.value)


def _compare_relations(gold: Node, gold_is: Labelled, pred: Node, pred_is: Labelled) -> Match:
    if gold.op != "relation" or pred.op != "relation":
        return Match(False, "relation")
    if gold_is.name is not None and not gold_is.value.symbols():
        return Match(False, "unsolved")
    return same_equation(gold, pred)


def _compare_quantities(gold: Node, pred: Node) -> Match:
    """Two values with whatever is attached to them: units, percent, degrees, bases, ratios, words."""
    if "unit" in (gold.op, pred.op):
        return _compare_units(gold, pred)
    if "ratio" in (gold.op, pred.op):
        return _compare_ratios(gold, pred)
    if gold.has("based") or pred.has("based"):
        return _compare_bases(gold, pred)
    if "text" in (gold.op, pred.op):
        return _compare_words(gold, pred)
    if gold.op == "symbol" and gold.text in _CHOICES and pred.op in ("symbol", "constant"):
        return Match(pred.text.upper() == gold.text, "choice")
    for op, factor in (("percent", Node("div", (number("1"), HUNDRED))), ("degrees", _RADIANS)):
        if gold.op == pred.op == op:
            return same_value(gold.args[0], pred.args[0])
        if gold.op == op:
            return same_value(gold.args[0], pred).or_else(lambda f=factor: _scaled(gold, f, pred))  # type: ignore[misc]
        if pred.op == op:
            return same_value(gold, pred.args[0]).or_else(lambda f=factor: _scaled(pred, f, gold))  # type: ignore[misc]
    return same_value(gold, pred)


def _scaled(marked: Node, factor: Node, plain: Node) -> Match:
    """``40%`` as 0.4 and ``90°`` as pi/2, against a side without the mark."""
    if not is_literal(marked.args[0]) or (rational(plain) is not None and not is_literal(plain)):
        return Match(False, "unevaluated")
    return same_value(Node("mul", (marked.args[0], factor)), plain)


def _compare_units(gold: Node, pred: Node) -> Match:
    gold_value, gold_words = _quantity(gold)
    pred_value, pred_words = _quantity(pred)
    gold_unit, pred_unit = unit_of(gold_words), unit_of(pred_words)
    if gold_unit is None or pred_unit is None or gold_unit == pred_unit:
        return compare(gold_value, pred_value)
    if gold_unit[0] != pred_unit[0]:
        return Match(False, "unit")
    exact_gold, exact_pred = rational(gold_value), rational(pred_value)
    if exact_gold is not None and exact_pred is not None and is_literal(pred_value):
        return Match(exact_gold * gold_unit[1] == exact_pred * pred_unit[1], "unit")
    return Match(False, "unit")


def _quantity(node: Node) -> tuple[Node, str]:
    return (node.args[0], node.text) if node.op == "unit" else (node, "")


def _compare_ratios(gold: Node, pred: Node) -> Match:
    """Part by part: ``2:3`` is not ``4:6``, for ``2:30`` may be a time. In lowest terms it is a fraction
    too."""
    if gold.op == pred.op:
        return in_order(gold.args, pred.args, same_value, "ratio")
    ratio, other = (gold, pred) if gold.op == "ratio" else (pred, gold)
    parts = [rational(arg) for arg in ratio.args]
    value = rational(other)
    if len(parts) != 2 or None in parts or value is None or not is_literal(other):
        return Match(False, "ratio")
    first, second = (Fraction(part or 0) for part in parts)
    whole = first.denominator == second.denominator == 1
    if not whole or not second or "." in "".join(arg.text for arg in other.walk()):
        return Match(False, "ratio")
    in_lowest_terms = gcd(first.numerator, second.numerator) == 1
    return Match(in_lowest_terms and first / second == value, "ratio")


def _compare_bases(gold: Node, pred: Node) -> Match:
    """The digits must agree, and the base where both state one: converting is the task."""
    if gold.op == pred.op == "neg":
        return _compare_bases(gold.args[0], pred.args[0])
    gold_digits, gold_base = _digits(gold)
    pred_digits, pred_base = _digits(pred)
    if gold_digits is None or pred_digits is None or (gold_base and pred_base and gold_base != pred_base):
        return Match(False, "base")
    return Match(gold_digits.lstrip("0").upper() == pred_digits.lstrip("0").upper(), "base")


def _digits(node: Node) -> tuple[str | None, str]:
    if node.op == "based":
        digits, _, base = node.text.partition("|")
        return digits, base
    return (node.text, "") if node.op in ("number", "text") else (None, "")


def _compare_words(gold: Node, pred: Node) -> Match:
    if gold.op == pred.op:
        return Match(_words(gold) == _words(pred), "words").or_else(lambda: _as_products(gold, pred))
    word, other = (gold, pred) if gold.op == "text" else (pred, gold)
    value = _NUMBER_WORDS.get(words_of(word.text))
    if value is not None:
        return same_value(*((number(value), other) if word is gold else (other, number(value))))
    return _as_products(gold, pred)


def _words(node: Node) -> str:
    words = [word for word in words_of(node.text).split() if word != "and"]
    return " ".join(words[1:] if len(words) > 1 and words[0] in ("the", "a", "an") else words)


def _as_products(gold: Node, pred: Node) -> Match:
    """Short words read as products of letters, in lower case: ``xy`` is ``yx``, but CBAD is not ABCD."""
    for node in (gold, pred):
        if node.op == "text" and (not node.args or node.text.isupper()):
            return Match(False, "words")
    return same_value(*(node.args[0] if node.op == "text" else node for node in (gold, pred)))
