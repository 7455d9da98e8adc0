"""The import rule: downward only, deferred imports included; frameworks only where the layer allows them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "archer"
BASE = {"types", "errors", "configs"}
# layer -> (our layers that it may import, outside packages that are reserved to some layers)
LAYERS: dict[str, tuple[set[str], set[str]]] = {
    "types": (set(), {"torch"}),
    "errors": (set(), set()),
    "configs": ({"errors"}, {"pydantic", "yaml"}),
    "objectives": (BASE, {"torch"}),
    "rewards": (BASE, {"math_verify", "latex2sympy2_extended", "sympy", "reasoning_gym"}),
    "data": (BASE | {"rewards"}, {"datasets", "datasketch", "numpy", "reasoning_gym"}),
    "policy": (BASE, {"torch", "transformers", "peft", "safetensors", "tokenizers", "numpy", "gguf"}),
    "rollout": (BASE | {"policy"}, {"torch", "transformers", "vllm", "numpy"}),
    "evaluation": (BASE | {"rewards", "data", "policy", "rollout", "analysis"}, {"numpy", "torch"}),
    "analysis": (BASE, {"numpy", "matplotlib", "plotly", "jinja2", "rich", "yaml"}),
    "train": (
        BASE | {"objectives", "rewards", "data", "policy", "rollout", "evaluation", "analysis"},
        {
            "torch",
            "transformers",
            "numpy",
            "rich",
            "tensorboard",
            "wandb",
            "trackio",
            "safetensors",
            "tokenizers",
        },
    ),
    "experiments": (BASE | {"evaluation", "analysis", "train"}, set()),
    "adapters": (
        BASE | {"objectives", "rewards", "data"},
        {"torch", "trl", "verl", "transformers", "omegaconf", "peft"},
    ),
    "recipes": (set(), set()),
}
RESERVED = set().union(*(outside for _, outside in LAYERS.values()))


def imports_of(path: Path) -> set[str]:
    """Absolute dotted names imported anywhere in the file, except under TYPE_CHECKING-free analysis."""
    names: set[str] = set()
    package = ("archer", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (prefix, node.module) if part)
            names.update(f"{module}.{alias.name}" if module == "archer" else module for alias in node.names)
    return names


def files_of(layer: str) -> list[Path]:
    single = PACKAGE / f"{layer}.py"
    return [single] if single.exists() else sorted((PACKAGE / layer).rglob("*.py"))


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_layer_imports_only_what_the_design_allows(layer):
    ours, outside = LAYERS[layer]
    for path in files_of(layer):
        for name in imports_of(path):
            top, *rest = name.split(".")
            if top == "archer" and rest:
                assert rest[0] in ours | {layer, "__version__"}, (
                    f"{path}: {layer} may not import archer.{rest[0]}"
                )
            elif top in RESERVED:
                assert top in outside, f"{path}: {layer} may not import {top}"


def test_every_module_belongs_to_a_layer():
    tops = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in PACKAGE.rglob("*.py")}
    assert tops - set(LAYERS) <= {"__init__", "__main__", "cli"}


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("archer", ["torch", "transformers", "pydantic", "sympy"]),
        ("archer.configs", ["torch", "transformers"]),
        ("archer.types", ["torch"]),
        ("archer.rewards", ["torch", "transformers"]),
        ("archer.analysis", ["torch", "transformers"]),
    ],
)
def test_importing_a_light_layer_loads_no_framework(module, forbidden):
    code = f"import sys, {module}; print([m for m in {forbidden!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
