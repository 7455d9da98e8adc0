"""A comparison: variants of one run, each with the same seeds."""

from typing import Annotated

from pydantic import Field, model_validator

from archer.configs.base import Config

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]


class StudyConfig(Config):
    """Several variants of one run times several seeds.

    Attributes:
        name: the study's folder is ``output/name``; the runs lie in ``VARIANT-seedN`` within it.
        base: a run recipe: a YAML file or a shipped recipe's name.
        overrides: dotted overrides for all runs.
        variants: name of each variant and its dotted overrides on top, in the order of the table.
        baseline: the variant that the others are compared with, seed by seed.
        seeds: values of ``train.seed``. A seed fixes the order of the prompts and the random streams, so runs of
            one seed are paired.
        groups: titles of tables and the variants in each; without groups all variants form one table.
        tail: entropy, length, repetition and KL are averaged over so many last steps of a run.
    """

    name: Name = "study"
    output: str = "studies"
    base: str
    overrides: tuple[str, ...] = ()
    variants: dict[Name, tuple[str, ...]] = Field(min_length=1)
    baseline: str
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    groups: dict[str, tuple[str, ...]] = Field(default={})
    tail: int = Field(default=10, ge=1)

    @model_validator(mode="after")
    def _names_exist(self) -> "StudyConfig":
        known = ", ".join(self.variants)
        if self.baseline not in self.variants:
            raise ValueError(f"baseline: expected one of the variants {known}; got {self.baseline!r}")
        for title, members in self.groups.items():
            for member in members:
                if member not in self.variants:
                    raise ValueError(f"groups.{title}: expected names of variants ({known}); got {member!r}")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: each may stand once; got {list(self.seeds)}")
        return self

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Title and variants of each table; the baseline is always among them, first if it is not listed."""
        groups = self.groups or {self.name: tuple(self.variants)}
        return {
            title: members if self.baseline in members else (self.baseline, *members)
            for title, members in groups.items()
        }
