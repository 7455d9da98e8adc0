"""Pure tensor functions: roles, advantages, ratios, KL, surrogates, aggregation. Imports torch only."""
