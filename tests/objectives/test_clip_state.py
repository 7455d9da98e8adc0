"""The clip state that every method reports of its tokens."""

import pytest
import torch

from archer.configs.objective import ArcherConfig, EightyTwentyConfig, EspoConfig, GrpoConfig, GspoConfig

BELOW, INSIDE, ABOVE = -1, 0, 1


@pytest.mark.parametrize(
    ("config", "state"),
    [
        # Ratios 1.1, 1.6, 0.25 | 0.7, 3.5; the second token of each response reasons.
        (ArcherConfig(), [[INSIDE, ABOVE, BELOW], [BELOW, ABOVE, INSIDE]]),
        (ArcherConfig(eps_r=0.7), [[INSIDE, INSIDE, BELOW], [BELOW, ABOVE, INSIDE]]),
        (GrpoConfig(eps_low=0.8, eps_high=0.05), [[ABOVE, ABOVE, INSIDE], [INSIDE, ABOVE, INSIDE]]),
        # One ratio a response: exp(-0.274) and exp(0.448).
        (GspoConfig(), [[BELOW, BELOW, BELOW], [ABOVE, ABOVE, INSIDE]]),
    ],
    ids=["archer", "archer, wider", "grpo", "gspo"],
)
def test_state_of_each_token_of_the_golden_batch(batch_f, evaluate, config, state):
    terms = evaluate(batch_f, config).terms
    assert terms.clip_BT.dtype == torch.int8
    assert terms.clip_BT.tolist() == state


@pytest.mark.parametrize(
    "config",
    [ArcherConfig(), GrpoConfig(), EightyTwentyConfig(), EspoConfig(vocabulary_size=50)],
    ids=lambda c: c.method,
)
def test_shares_in_the_metrics_count_the_same_tokens(batch_f, evaluate, config):
    terms = evaluate(batch_f, config).terms
    for name, sign in (("above", ABOVE), ("below", BELOW)):
        total = sum(float(v[0]) for key, v in terms.metrics.items() if key.startswith(f"clip/{name}"))
        assert total == float((terms.clip_BT == sign).sum())
    assert (terms.clip_BT[~batch_f.mask_BT] == INSIDE).all()
