"""Expressions: sums, products, powers, functions, brackets, matrices.

Implicit products bind like explicit ones: ``1/2x`` is ``(1/2) x``. A function without brackets takes the
factors that follow it up to the next bracket, function or operator: ``\\sin 2x \\cos x`` is ``sin(2x)
cos(x)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from archer.rewards.math.cursor import CLOSING
from archer.rewards.math.numerals import Numerals
from archer.rewards.math.syntax import INFINITY, TEN, TWO, Node, ParseError, brackets, number, words
from archer.rewards.math.tokens import END, FUNCTIONS, Token

_MAX_POSTFIX = 8
_MAX_ARGUMENTS = 12
_OPENING = {"(": "(", "[": "[", r"\{": "{", r"\langle": "<", r"\lbrack": "["}
_PAIRS = frozenset(("()", "[]", "(]", "[)", "{}", "<>"))
_ENCLOSED = {
    r"\lfloor": (r"\rfloor", "floor"),
    r"\lceil": (r"\rceil", "ceil"),
    r"\lvert": (r"\rvert", "abs"),
    r"\vert": (r"\vert", "abs"),
    "|": ("|", "abs"),
}
_GREEK = words(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma "
    "tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell"
)
_DECORATIONS = words("overline bar vec hat tilde widehat underline overrightarrow")
_FIGURES = frozenset(("angle", "triangle", "measuredangle", "arc"))
_DOTS = frozenset(("ldots", "dots", "cdots", "dotsc"))
_MATRICES = words("pmatrix bmatrix matrix Bmatrix smallmatrix array")
_FUNCTION_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_INVERSES = {"sin": "asin", "cos": "acos", "tan": "atan"}
_CALLED = frozenset("fg")
_POSTFIX = {"!": "factorial", "%": "percent", r"\degree": "degrees"}
_TIMES = frozenset(("*", r"\cdot", r"\times", r"\ast"))
_DIVIDED = frozenset(("/", r"\div"))


class Expressions(Numerals, ABC):
    """The grammar of one value."""

    # Inside bars the next bar closes: |x| y |z| is read, nested bars are not.
    _bars = 0

    @abstractmethod
    def items(self) -> Node:
        """What may stand between brackets: one item or a list."""

    def expression(self) -> Node:
        """A sum."""
        self.enter()
        if self.peek().text in (r"\pm", r"\mp"):
            sign = self.take().text
            terms = [Node("plusminus", (self._term(),), sign)]
        else:
            terms = [self._term()]
        while (operator := self.peek().text) in ("+", "-", r"\pm", r"\mp"):
            self.take()
            right = self._term()
            if operator in ("+", "-"):
                terms.append(Node("neg", (right,)) if operator == "-" else right)
            else:
                terms = [Node("plusminus", (_sum(terms), right), operator)]
        self.leave()
        return _sum(terms)

    def _term(self) -> Node:
        """A signed product."""
        negative = False
        while self.peek().text in ("+", "-"):
            negative ^= self.take().text == "-"
        factors = [self._factor()]
        while True:
            text = self.peek().text
            if text in _TIMES or text in _DIVIDED:
                self.take()
                factor = self._signed_factor()
                factors.append(Node("inv", (factor,)) if text in _DIVIDED else factor)
            elif self._starts_factor(after=factors[-1]):
                factors.append(self._factor())
            else:
                break
        node = _product(factors)
        return Node("neg", (node,)) if negative else node

    def _signed_factor(self) -> Node:
        negative = False
        while self.peek().text in ("+", "-"):
            negative ^= self.take().text == "-"
        factor = self._factor()
        return Node("neg", (factor,)) if negative else factor

    def _starts_factor(self, after: Node) -> bool:
        """Whether an implicit product goes on. Two numbers side by side are not one."""
        token = self.peek()
        if token.kind == "number":
            return after.op not in ("number", "repeating", "based", "mixed")
        if token.kind == "letter" or token.text in _OPENING or token.text == "{":
            return True
        if token.text in _ENCLOSED:
            return token.text not in ("|", r"\vert") or self._bars == 0
        return token.kind == "command" and self._is_value_command(token.text[1:])

    def _is_value_command(self, name: str) -> bool:
        return (
            name in _GREEK
            or name in FUNCTIONS
            or name in _DECORATIONS
            or name in _FIGURES
            or name in _DOTS
            or name in ("frac", "sqrt", "pi", "infty", "infinity", "binom", "begin", "emptyset", "varnothing")
        )

    def _factor(self) -> Node:
        """A primary with its powers, factorials, percent and degree signs."""
        node = self._primary()
        for _ in range(_MAX_POSTFIX):
            text = self.peek().text
            if text == "^":
                self.take()
                self.enter()
                node = Node("pow", (node, self._exponent()))
                self.leave()
            elif text in _POSTFIX:
                self.take()
                node = Node(_POSTFIX[text], (node,))
            else:
                return node
        raise ParseError("too_deep")

    def _exponent(self) -> Node:
        """A braced group, or a signed primary; powers associate to the right."""
        negative = False
        while self.peek().text in ("+", "-"):
            negative ^= self.take().text == "-"
        node = self.group()
        if self.peek().text == "^":
            self.take()
            self.enter()
            node = Node("pow", (node, self._exponent()))
            self.leave()
        return Node("neg", (node,)) if negative else node

    def group(self, digits: bool = False) -> Node:
        """What a TeX command takes: a braced group or one primary.

        ``digits``: of a bare number take one digit only, as in ``\\frac12``. Powers and roots take it whole:
        ``2^10`` and ``\\sqrt12`` mean what they look like in plain text.
        """
        token = self.peek()
        if token.text == "{":
            return self._braced()
        if digits and token.kind == "number" and len(token.text) > 1:
            self.replace(Token("number", token.text[1:]))
            return number(token.text[0])
        if token.kind == "number":
            return number(self.take().text)
        return self._primary()

    def _braced(self) -> Node:
        self.expect("{")
        self.enter()
        node = self.items()
        self.leave()
        self.expect("}")
        return node

    def _primary(self) -> Node:
        token = self.take()
        match token.kind:
            case "number":
                return self.number_from(token.text)
            case "letter":
                return self._symbol(token.text)
            case "word" if self.peek().text == "_" and token.text.isalnum():
                self.take()
                return Node("based", text=f"{token.text}|{self.base()}")
            case "word":
                return Node("text", text=token.text)
            case "command" if token.text not in _OPENING and token.text not in _ENCLOSED:
                return self._command(token.text[1:])
        if token.text in _OPENING:
            return self._bracketed(token.text)
        if token.text in _ENCLOSED:
            return self._enclosed(token.text)
        if token.text == "{":
            self.back()
            return self._braced()
        raise ParseError("operand")

    def _symbol(self, letter: str) -> Node:
        name = letter + self._suffix()
        if name in ("e", "i"):
            return Node("constant", text=name)
        if self.peek().text == "(" and (letter in _CALLED or self._is_defined()):
            self.take()
            inner = self._until(")")
            return Node("call", inner.args if inner.op == "list" else (inner,), name)
        return Node("symbol", text=name)

    def _is_defined(self) -> bool:
        """``S(n) = ...`` names a function, while ``S(n)`` elsewhere is a product."""
        if self.peek(-2) is not END and self.peek(-2).text not in (",", ";"):
            return False
        for ahead in range(1, _MAX_ARGUMENTS):
            token = self.peek(ahead)
            if token.text == ")":
                return self.peek(ahead + 1).text == "="
            if token.kind not in ("letter", "number") and token.text != ",":
                return False
        return False

    def _suffix(self) -> str:
        """Subscripts and primes, as part of a name."""
        suffix = ""
        while self.peek().text in ("_", "'"):
            suffix += self.take().text
            if suffix[-1] == "_":
                suffix += self.raw_group()
        return suffix

    def _command(self, name: str) -> Node:
        if name in FUNCTIONS:
            return self._function(name)
        if name in _GREEK:
            return Node("symbol", text=name + self._suffix())
        if name in _DECORATIONS:
            return Node("symbol", text=f"{name} {self.raw_group()}{self._suffix()}")
        if name in _FIGURES:
            return Node("symbol", text=f"{name} {self._letters()}")
        if name in _DOTS:
            return Node("dots")
        match name:
            case "frac":
                return Node("div", (self.group(digits=True), self.group(digits=True)))
            case "binom":
                return Node("binomial", (self.group(digits=True), self.group(digits=True)))
            case "sqrt":
                return self._root()
            case "pi":
                return Node("constant", text="pi")
            case "infty" | "infinity":
                return INFINITY
            case "emptyset" | "varnothing":
                return brackets("{}")
            case "reals":
                return Node("reals")
            case "begin":
                return self._matrix()
        raise ParseError("command")

    def _letters(self) -> str:
        name = ""
        while self.peek().kind == "letter":
            name += self.take().text + self._suffix()
        if not name:
            raise ParseError("operand")
        return name

    def _root(self) -> Node:
        degree = TWO
        if self.peek().text == "[":
            self.take()
            degree = self._until("]")
        return Node("root", (self.group(), degree))

    def _function(self, name: str) -> Node:
        power = base = None
        for _ in range(2):
            if self.peek().text == "^" and power is None:
                self.take()
                power = self._exponent()
            elif self.peek().text == "_" and base is None and name == "log":
                self.take()
                base = self.group()
        name = _FUNCTION_NAMES.get(name, name)
        if power == Node("neg", (number("1"),)) and name in _INVERSES:
            name, power = _INVERSES[name], None
        node = _applied(name, self._argument(), base)
        return node if power is None else Node("pow", (node, power))

    def _argument(self) -> Node:
        if self.peek().text == "{":
            return self._braced()
        if self.peek().text in ("(", "["):
            return self._primary()
        self.enter()
        factors = [self._factor()]
        while self._starts_factor(after=factors[-1]) and self._is_simple(self.peek()):
            factors.append(self._factor())
        self.leave()
        return _product(factors)

    def _is_simple(self, token: Token) -> bool:
        return token.kind in ("number", "letter") or token.text[1:] in _GREEK | {"pi", "frac", "sqrt"}

    def _bracketed(self, opening: str) -> Node:
        self.enter()
        inner = brackets("{}") if self.at_end() else self.items()
        self.leave()
        pair = _OPENING[opening] + CLOSING.get(self.take().text, "")
        items = (
            () if inner == brackets("{}") and pair == "{}" else inner.args if inner.op == "list" else (inner,)
        )
        if pair not in _PAIRS or (pair in ("(]", "[)") and len(items) != 2):
            raise ParseError("brackets")
        single = len(items) == 1 and (pair == "()" or items[0].op == "matrix")
        return items[0] if single else Node("brackets", items, pair)

    def _until(self, closing: str) -> Node:
        self.enter()
        node = self.items()
        self.leave()
        self.expect(closing)
        return node

    def _enclosed(self, opening: str) -> Node:
        closing, op = _ENCLOSED[opening]
        self._bars += op == "abs"
        node = self._until(closing)
        self._bars -= op == "abs"
        return Node(op, (node,))

    def _matrix(self) -> Node:
        name = self.raw_group()
        if name not in _MATRICES:
            raise ParseError("environment")
        if name == "array":
            self.raw_group()
        self.enter()
        rows: list[list[Node]] = [[]]
        while self.peek().text != r"\end":
            rows[-1].append(self.expression())
            separator = self.take().text
            if separator == "\\\\":
                rows.append([])
            elif separator == r"\end":
                self.back()
            elif separator != "&":
                raise ParseError("matrix")
        self.take()
        self.leave()
        rows = [row for row in rows if row]
        if self.raw_group() != name or not rows or len({len(row) for row in rows}) != 1:
            raise ParseError("matrix")
        return Node("matrix", tuple(cell for row in rows for cell in row), f"{len(rows)}|{len(rows[0])}")


def _sum(terms: list[Node]) -> Node:
    return terms[0] if len(terms) == 1 else Node("add", tuple(terms))


def _product(factors: list[Node]) -> Node:
    if len(factors) == 1:
        return factors[0]
    if len(factors) == 2 and factors[1].op == "inv":
        return Node("div", (factors[0], factors[1].args[0]))
    return Node("mul", tuple(factors))


def _applied(name: str, argument: Node, base: Node | None) -> Node:
    if name == "exp":
        return Node("pow", (Node("constant", text="e"), argument))
    if name == "lg" or (name == "log" and base is None):
        base = TEN
    if base == Node("constant", text="e"):
        name, base = "ln", None
    return Node("function", (argument,) if base is None else (argument, base), "log" if base else name)
