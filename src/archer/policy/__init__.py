"""The Hugging Face model and tokenizer, log-probabilities and entropies, LoRA, the reference."""
