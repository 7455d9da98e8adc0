"""A recipe for a data set: sources, stages in order, exports.

Every threshold is a setting because the paper publishes none of them; the defaults are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from archer.configs.base import Config
from archer.configs.data import Columns, RowsConfig
from archer.configs.engine import Engine, EngineConfig
from archer.configs.reward import RewardConfig

Form = Literal[
    "archer",
    "gsm8k",
    "math",
    "deepscaler",
    "skywork-or1",
    "dapo-math",
    "big-math",
    "deepcoder",
    "code-contests",
    "codeforces",
    "apps",
    "taco",
    "livecodebench",
    "leetcode",
    "humaneval",
    "mbpp",
    "verl",
    "trl",
]


def _off(value: object) -> object:
    # YAML reads an unquoted off as false.
    return "off" if value is False else value


Action = Annotated[Literal["drop", "flag", "off"], BeforeValidator(_off)]
Share = Annotated[float, Field(gt=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]


class SourceConfig(RowsConfig):
    """One raw set of problems.

    Attributes:
        form: how its rows are laid out; ``archer`` rows are read through ``columns``.
        licence: as its owner gives it; copied to the data card.
        limit: read at most this many rows.
    """

    form: Form
    licence: str = "not given"
    columns: Columns = Columns()
    domain: str = "math"
    limit: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.path is None) == (self.hub is None):
            raise ValueError(f"expected exactly one of path and hub, got path {self.path} and hub {self.hub}")
        return self


class Normalisation(Config):
    """What is made equal before prompts are compared.

    Attributes:
        case: ``fold`` ignores case.
        punctuation: ``drop`` compares words and numbers only; ``keep`` makes every symbol a token.
        numbers: ``mask`` makes all numbers equal.
        latex: ignore what changes looks only: dollar signs, spacing, ``\\left``, ``\\dfrac`` for ``\\frac``.
    """

    case: Literal["fold", "keep"] = "fold"
    punctuation: Literal["drop", "keep"] = "keep"
    numbers: Literal["keep", "mask"] = "keep"
    latex: bool = True


class NgramTest(Config):
    """When two prompts count as the same. The defaults are ours.

    Attributes:
        n: tokens an N-gram; a prompt of fewer tokens is one N-gram by itself.
        threshold: share of the distinct N-grams of one prompt that stand in the other.
        min_shared: N-grams that must be shared at the least.
        direction: ``either`` measures against the prompt with fewer N-grams, so it also finds a short prompt
            inside a long one; ``later`` measures against the later (for benchmarks: the training) prompt.
        normalise: applied to both.
    """

    n: Annotated[int, Field(ge=1, le=64)] = 13
    threshold: Share = 0.8
    min_shared: Annotated[int, Field(ge=1)] = 1
    direction: Literal["either", "later"] = "either"
    normalise: Normalisation = Normalisation()


class BenchmarkTest(NgramTest):
    """The same test with defaults for benchmarks: n is the nearest published value (CE-GPPO's), the rest ours."""

    n: Annotated[int, Field(ge=1, le=64)] = 9
    threshold: Share = 0.5
    normalise: Normalisation = Normalisation(punctuation="drop")


class StageBase(Config):
    """A stage that is left out where ``enabled`` is false; the data card says so."""

    enabled: bool = True


class ChecksStage(StageBase):
    """Checks of one problem at a time. ``flag`` keeps the problem and lists the check in ``meta.flags``.

    Attributes:
        gold: maths answers that the grader can't parse.
        control_characters: control or replacement characters in the prompt or answer.
        missing_images: the statement refers to a picture that it doesn't hold.
        interactive: code problems whose program talks to a judge.
        many_answers: code problems that accept several outputs, where exact comparison is unsafe.
        shown_tests: ``remove`` takes out tests that the statement shows (paper, appendix A.1).
        min_tests: code problems with fewer tests left are dropped (paper: 5).
        max_tests: keep the first so many of the tests left; sets put their own tests before generated ones.
    """

    kind: Literal["checks"] = "checks"
    gold: Action = "drop"
    control_characters: Action = "drop"
    missing_images: Action = "drop"
    interactive: Action = "flag"
    many_answers: Action = "flag"
    shown_tests: Literal["remove", "keep"] = "remove"
    min_tests: Annotated[int, Field(ge=0)] = 5
    max_tests: Annotated[int, Field(gt=0)] | None = None


class ExactStage(StageBase):
    """Prompts equal after normalisation: keep the first; drop all of a group whose answers differ."""

    kind: Literal["exact-duplicates"] = "exact-duplicates"
    normalise: Normalisation = Normalisation()
    conflicts: Literal["drop", "keep-first"] = "drop"


class NgramStage(StageBase):
    """Prompts that share most N-grams with an earlier kept one are dropped."""

    kind: Literal["ngram-duplicates"] = "ngram-duplicates"
    test: NgramTest = NgramTest()


class DecontaminateStage(StageBase):
    """Problems that share N-grams with a benchmark are dropped; others are listed where numbers differ only.

    Attributes:
        benchmarks: names under ``benchmarks`` of the recipe; empty means all.
        test: when a problem counts as one of a benchmark.
        near: the same test after numbers are masked; what it finds is reported, or dropped.
    """

    kind: Literal["decontaminate"] = "decontaminate"
    benchmarks: Sequence[Name] = ()
    test: BenchmarkTest = BenchmarkTest()
    near_threshold: Share = 0.8
    near: Annotated[Literal["report", "drop", "off"], BeforeValidator(_off)] = "report"


class SamplerConfig(EngineConfig):
    """The model that a difficulty filter samples from, how, and the grader.

    Attributes:
        model: hub name or folder; also of a server's model, whose tokenizer is needed here.
        revision: commit of a hub model; a change of it makes the stage run again.
        gguf_file: file name within ``model``, for weights in GGUF form.
        max_prompt_tokens: problems with longer prompts are not sampled and count as unscorable.
        template: prompt template given to the model, with ``{prompt}``.
        reward: the grader.
    """

    model: str
    revision: str | None = None
    gguf_file: str | None = None
    engine: Engine = "vllm"
    temperature: Annotated[float, Field(ge=0)] = 0.8
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Annotated[int, Field(gt=0)] = 32768
    max_prompt_tokens: Annotated[int, Field(gt=0)] = 4096
    template: str | None = None
    reward: RewardConfig = RewardConfig()


class DifficultyStage(StageBase):
    """Drop problems by how often a model solves them.

    Attributes:
        sampler: the model.
        samples: responses a problem (paper: 8).
        drop: ``never`` drops what it never solves, ``always`` what it always solves.
        solved_at: a response counts as right from this score.
        batch: problems sent to the sampler at a time; each batch is stored before the next.
        cache: file that keeps the scores; by default beside the output.
    """

    kind: Literal["difficulty"] = "difficulty"
    sampler: SamplerConfig
    samples: Annotated[int, Field(gt=0)] = 8
    drop: Sequence[Literal["never", "always"]]
    solved_at: Share = 1.0
    seed: int = 0
    batch: Annotated[int, Field(gt=0)] = 64
    cache: Path | None = None


class StandardiseStage(StageBase):
    """Bring code problems to stdin/stdout or function form.

    Attributes:
        forms: forms to keep; a problem whose tests end in another form, or in several, is dropped.
        convert_asserts: turn ``assert f(1, 2) == 3`` into a function test where arguments are literals.
        stdin_template, function_template: text around the statement; ``{prompt}``, and in the second
            ``{fn_name}`` and ``{starter_code}``, are replaced.
    """

    kind: Literal["standardise"] = "standardise"
    forms: Sequence[Literal["stdin", "functional", "assert"]] = ("stdin", "functional")
    convert_asserts: bool = True
    stdin_template: str = (
        "{prompt}\n\nWrite a Python program that reads from standard input and writes to standard output."
    )
    function_template: str = (
        "{prompt}\n\nWrite a Python function named `{fn_name}` that returns the answer.\n{starter_code}"
    )

    @model_validator(mode="after")
    def _templates_have_slots(self) -> Self:
        for name, template in (("stdin", self.stdin_template), ("function", self.function_template)):
            if "{prompt}" not in template:
                raise ValueError(f"{name}_template: expected text that holds {{prompt}}, got {template!r}")
        return self


Stage = Annotated[
    ChecksStage | ExactStage | NgramStage | DecontaminateStage | DifficultyStage | StandardiseStage,
    Field(discriminator="kind"),
]


class DataRecipe(Config):
    """How a data set is built.

    Attributes:
        sources: name to source, in order of preference unless ``prefer`` says otherwise. The name becomes
            ``Problem.source`` and the first part of every id.
        prefer: source names, most preferred first; where a problem stands in several sources the preferred
            one is kept. Sources not named follow in their own order.
        benchmarks: name to a set that the result must not contain.
        stages: name to stage, run in order.
        exports: ``jsonl`` (loads as it is), ``parquet``, ``verl`` (parquet rows), ``trl`` (jsonl rows).
        samples: dropped problems shown a reason in the data card.
    """

    name: Name
    description: str = ""
    sources: Annotated[Mapping[Name, SourceConfig], Field(min_length=1)]
    prefer: Sequence[Name] = ()
    benchmarks: Mapping[Name, SourceConfig] = {}
    stages: Mapping[Name, Stage]
    exports: Sequence[Literal["jsonl", "parquet", "verl", "trl"]] = ("jsonl",)
    samples: Annotated[int, Field(ge=0)] = 3

    @model_validator(mode="after")
    def _names_are_consistent(self) -> Self:
        if unknown := set(self.prefer) - set(self.sources):
            known = ", ".join(self.sources)
            raise ValueError(f"prefer: expected names of sources ({known}), got {', '.join(sorted(unknown))}")
        if "sources" in self.stages:
            raise ValueError("stages.sources: this name is taken by the reading of the sources")
        for name, stage in self.stages.items():
            if stage.kind == "decontaminate":
                if unknown := set(stage.benchmarks) - set(self.benchmarks):
                    known = ", ".join(self.benchmarks)
                    wrong = ", ".join(sorted(unknown))
                    raise ValueError(
                        f"stages.{name}.benchmarks: expected names of benchmarks ({known}), got {wrong}"
                    )
                if not self.benchmarks:
                    raise ValueError(f"stages.{name}: needs at least one entry under benchmarks")
        return self
