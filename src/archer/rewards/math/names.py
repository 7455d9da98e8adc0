"""Labels: what may stand before an equals sign without being part of the answer."""

from __future__ import annotations

from archer.rewards.math.syntax import Node


def is_name(node: Node) -> bool:
    """True for one name: a symbol, words, ``f(3)``, ``AB``, ``|z|``, ``[ABC]``, ``m \\angle A`` or ``\\sin
    A``.

    ``x+y`` and ``2x`` are no names: ``x+y=5`` is one equation in two unknowns, not the value 5.
    """
    match node.op:
        case "symbol" | "text" | "call":
            return True
        case "constant":
            return node.text in ("e", "i")
        case "abs" | "function":
            return is_name(node.args[0])
        case "brackets":
            return node.text == "[]" and len(node.args) == 1 and is_name(node.args[0])
        case "mul":
            return all(_is_figure_part(part) for part in node.args) or node.args[-1].text.startswith("angle ")
    return False


def _is_figure_part(part: Node) -> bool:
    return part.op == "symbol" and part.text[0].isupper()
