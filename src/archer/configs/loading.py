"""YAML files and dotted overrides to a checked configuration."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from archer.configs.base import Config
from archer.errors import ConfigError

C = TypeVar("C", bound=Config)

RECIPES = Path(__file__).parents[1] / "recipes"
KINDS = ("data", "studies", "benchmarks")
"""Folders of recipes for other things than runs."""


def find_recipe(name: str | Path) -> Path:
    """A YAML file by path, or one that ships with Archer by its name (``demo``, ``demo.yaml``).

    Raises:
        ConfigError: there is neither.
    """
    path = Path(name)
    stem = path.name.removesuffix(".yaml")
    for candidate in (path, RECIPES / f"{stem}.yaml", *(RECIPES / kind / f"{stem}.yaml" for kind in KINDS)):
        if candidate.is_file():
            return candidate
    known = sorted(p.stem for p in RECIPES.rglob("*.yaml"))
    raise ConfigError(
        f"no recipe {str(name)!r}: expected a YAML file, or one of the shipped {', '.join(known)}"
    )


def load_config(kind: type[C], path: str | Path, overrides: Sequence[str] = ()) -> C:
    """Read ``path``, apply ``a.b=value`` overrides (values are YAML) and check the result.

    Raises:
        ConfigError: the file is not YAML, or a key or value is wrong; the message names the file, the field,
            the allowed values and the nearest right key.
    """
    recipe = find_recipe(path)
    try:
        values = yaml.safe_load(recipe.read_text()) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{recipe}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{recipe}: expected a mapping of settings, got {type(values).__name__}")
    for override in overrides:
        _apply(values, override)
    return build_config(kind, values, where=str(recipe))


def build_config(kind: type[C], values: Mapping[str, Any], *, where: str) -> C:
    """Check ``values`` against ``kind``; ``where`` is named in the error."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [_explain(kind, problem) for problem in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(lines)) from error


def dump_config(config: Config) -> str:
    """YAML text that ``load_config`` reads back to an equal configuration."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _apply(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"override {override!r}: expected KEY=VALUE, for example train.steps=50")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error
    if isinstance(value, str):
        value = _number(value)
    *parents, last = key.split(".")
    place = values
    for parent in parents:
        inner = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {parent} is {inner!r}, which has no fields")
        place = inner
    if key == "objective.method" and place.get("method", "archer") != value:
        place.clear()  # another method has other settings, and refuses those of the old one
    place[last] = value


def _number(text: str) -> str | float:
    """YAML 1.1 reads ``1e-6`` as text; people mean the number."""
    try:
        return float(text)
    except ValueError:
        return text


def _explain(kind: type[BaseModel], problem: Any) -> str:
    location = [str(part) for part in problem["loc"]]
    field = ".".join(location) or "(whole file)"
    if problem["type"] == "extra_forbidden":
        known = sorted(_known_keys(kind, location[:-1]))
        near = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known fields: {', '.join(known)}"
        return f"{field}: no such field; {hint}"
    message = problem["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(problem["input"], dict) else f", got {problem['input']!r}"
    return f"{field}: {message}{shown}"


def _known_keys(kind: type[BaseModel], location: Sequence[str]) -> set[str]:
    """Field names at ``location``; pydantic puts the tag of a union into the location, which is followed too."""
    models: list[type[BaseModel]] = [kind]
    for part in location:
        models = [
            found
            for model in models
            for found in (
                list(_models_in(model.model_fields[part].annotation))
                if part in model.model_fields
                else _tagged(model, part)
            )
        ]
    return {name for model in models for name in model.model_fields}


def _tagged(model: type[BaseModel], tag: str) -> list[type[BaseModel]]:
    tags = {value for field in model.model_fields.values() for value in get_args(field.annotation)}
    return [model] if tag in tags else []


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
