"""Loading, checking, de-duplicating and filtering problems."""

from archer.data.loading import filter_overlong, fingerprint, load_problems, prompt_text, shared_prompts
from archer.data.stream import PromptStream

__all__ = ["PromptStream", "filter_overlong", "fingerprint", "load_problems", "prompt_text", "shared_prompts"]
