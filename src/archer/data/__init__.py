"""Loading, checking, de-duplicating and filtering problems."""

from archer.data.building import build
from archer.data.fields import prompt_text
from archer.data.loading import filter_overlong, fingerprint, load_problems, shared_prompts
from archer.data.outcomes import MakeSampler, ScoredSampler
from archer.data.runner import Progress
from archer.data.stream import PromptStream

__all__ = [
    "MakeSampler",
    "Progress",
    "PromptStream",
    "ScoredSampler",
    "build",
    "filter_overlong",
    "fingerprint",
    "load_problems",
    "prompt_text",
    "shared_prompts",
]
