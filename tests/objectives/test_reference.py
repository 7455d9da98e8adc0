"""Every method against a slow reference: plain Python, one token at a time, written from the definitions.

A token's reference is (loss, slope of the loss in log pi), both before aggregation.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from operator import mul
from statistics import mean

import pytest

from archer.configs.objective import (
    ArcherConfig,
    ArcherKConfig,
    ArcherReleasedConfig,
    ArLoptiConfig,
    AspoConfig,
    AspoReleasedConfig,
    CeGppoConfig,
    CispoConfig,
    DapoConfig,
    DrGrpoConfig,
    EightyTwentyConfig,
    EntropyAdvantageConfig,
    EspoConfig,
    GppoConfig,
    GrpoConfig,
    GspoConfig,
    HapoConfig,
    HapoReleasedConfig,
    KLCovConfig,
    PearConfig,
    SteerConfig,
)


@dataclass
class Token:
    row: int
    column: int
    group: int
    logp: float
    old: float
    ref: float
    A: float
    H_old: float
    H: float

    @property
    def r(self):
        return math.exp(max(-20, min(20, self.logp - self.old)))


def tokens_of(batch):
    grids = (
        batch.logp_BT,
        batch.old_logp_BT,
        batch.ref_logp_BT,
        batch.advantage_BT,
        batch.old_entropy_BT,
        batch.entropy_BT,
    )
    mask = batch.mask_BT.tolist()
    return [
        Token(i, t, int(batch.group_B[i]), *(float(grid[i, t]) for grid in grids))
        for i in range(len(mask))
        for t in range(len(mask[i]))
        if mask[i][t]
    ]


def ppo(r, A, low, high, c=None):
    """Loss and slope in log pi."""
    clipped = min(max(r, 1 - low), 1 + high)
    loss, slope = (-A * r, -A * r) if -A * r >= -A * clipped else (-A * clipped, 0.0)
    if c is not None and A < 0 and loss > -A * c:
        return -A * c, 0.0
    return loss, slope


def kl(token, config):
    d = token.logp - token.ref
    value, slope = {
        "k1": (d, 1.0),
        "k2": (d * d / 2, d),
        "k3": (math.exp(-d) + d - 1, 1 - math.exp(-d)),
    }[config.kl_estimator]
    if config.kl_max is not None and abs(value) > config.kl_max:
        return math.copysign(config.kl_max, value), 0.0
    return value, slope


def plus(pair, weight, other):
    return pair[0] + weight * other[0], pair[1] + weight * other[1]


def quantile(values, rho):
    ordered = sorted(Fraction(v) for v in values)
    position = Fraction(str(rho)) * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def by_pool(tokens, scope):
    pools = defaultdict(list)
    for token in tokens:
        pools[{"response": token.row, "group": token.group, "batch": 0}[scope]].append(token)
    return pools.values()


def reached(tokens, config, rho):
    """Ids of the tokens whose entropy reaches its pool's quantile."""
    out = set()
    for pool in by_pool(tokens, config.scope):
        entropy = {id(t): Fraction(t.H_old if config.entropy_from == "old" else t.H) for t in pool}
        tau = quantile(entropy.values(), rho)
        out |= {k for k, h in entropy.items() if (h >= tau if config.tie == "reasoning" else h > tau)}
    return out


def archer(tokens, config):
    high = reached(tokens, config, config.rho)
    for t in tokens:
        eps, beta = (config.eps_r, config.beta_r) if id(t) in high else (config.eps_k, config.beta_k)
        yield plus(ppo(t.r, t.A, eps, eps, config.dual_clip), beta, kl(t, config))


def archer_k(tokens, config):
    roles = [reached(tokens, config, rho) for rho in config.thresholds]
    for t in tokens:
        k = sum(id(t) in high for high in roles)
        eps = config.eps[k]
        yield plus(ppo(t.r, t.A, eps, eps, config.dual_clip), config.beta[k], kl(t, config))


def archer_released(tokens, config):
    """The policy's part only; the test adds the KL means."""
    high = reached(tokens, config, config.rho)
    for t in tokens:
        eps = config.eps_r if id(t) in high else config.eps_k
        yield ppo(t.r, t.A, eps, eps, config.dual_clip)


def clipped(tokens, config):
    for t in tokens:
        pair = ppo(t.r, t.A, config.eps_low, config.eps_high, config.dual_clip)
        yield plus(pair, config.beta, kl(t, config))


def geometric_ratio(tokens):
    return math.exp(min(mean(t.logp - t.old for t in tokens), 10))


def gspo(tokens, config):
    rows = {row[0].row: geometric_ratio(row) for row in by_pool(tokens, "response")}
    for t in tokens:
        yield ppo(rows[t.row], t.A, config.eps_low, config.eps_high)


def espo(tokens, config):
    """Losses weighted so that their mean over the response is the mean of its groups' means."""
    high = reached(tokens, config, config.rho)
    weight, ratio, eps = {}, {}, {}
    for row in by_pool(tokens, "response"):
        groups = [[t for t in row if (id(t) in high) == role] for role in (True, False)]
        groups = [g for g in groups if g]
        for group in groups:
            for t in group:
                ratio[id(t)] = geometric_ratio(group)
                eps[id(t)] = config.alpha * mean(x.H_old for x in group) / math.log(config.vocabulary_size)
                weight[id(t)] = len(row) / len(group) / len(groups)
    for t in tokens:
        loss, slope = ppo(ratio[id(t)], t.A, eps[id(t)], eps[id(t)])
        yield weight[id(t)] * loss, weight[id(t)] * slope


def cispo(tokens, config):
    for t in tokens:
        w = min(t.r, 1 + config.eps_high)
        yield -w * t.A * t.logp, -w * t.A


def gppo(tokens, config):
    b1, b2 = (config.beta_1, config.beta_2) if isinstance(config, CeGppoConfig) else (1, 1)
    for t in tokens:
        w = t.r
        if t.A < 0 and w < 1 - config.eps_low:
            w = b1 * (1 - config.eps_low)
        elif t.A > 0 and w > 1 + config.eps_high:
            w = b2 * (1 + config.eps_high)
        elif t.A < 0 and config.dual_clip is not None and w > config.dual_clip:
            yield -t.A * config.dual_clip, 0.0
            continue
        yield -t.A * w, -t.A * w


def eighty_twenty(tokens, config):
    high = reached(tokens, config, config.rho)
    for t in tokens:
        pair = ppo(t.r, t.A, config.eps_low, config.eps_high, config.dual_clip)
        yield pair if id(t) in high else (0.0, 0.0)


def ar(tokens, config):
    for t in tokens:
        A = t.A * (config.alpha * math.exp(t.old) + 1 - config.alpha)
        pair = ppo(t.r, A, config.eps_low, config.eps_high, config.dual_clip)
        pair = plus(pair, config.beta, kl(t, config))
        yield pair if config.eta is None or math.exp(t.old) < config.eta else (0.0, 0.0)


def kl_cov(tokens, config):
    a, b = mean(t.logp for t in tokens), mean(t.A for t in tokens)
    ranked = sorted(tokens, key=lambda t: -(t.logp - a) * (t.A - b))
    chosen = {id(t) for t in ranked[: max(int(config.share * len(tokens)), 1)]}
    for t in tokens:
        d = t.logp - t.old
        penalty = config.penalty * (id(t) in chosen)
        yield plus((-t.A * t.r, -t.A * t.r), penalty, (abs(d), math.copysign(1, d)))


def entropy_advantage(tokens, config):
    for t in tokens:
        A = t.A + min(config.alpha * t.H, abs(t.A) / config.kappa)
        yield ppo(t.r, A, config.eps_low, config.eps_high, config.dual_clip)


def aspo(tokens, config):
    high = reached(tokens, config, config.rho) if isinstance(config, AspoReleasedConfig) else set()
    for t in tokens:
        low = up = config.eps_r if id(t) in high else getattr(config, "eps_k", 0.2)
        c = config.soft_dual_clip
        if t.A > 0:
            w = 1 / min(t.r, 1 + up)
            pair = (-t.A * w, 0.0 if t.r > 1 + up else -t.A * w)
        else:
            w = max(t.r, 1 - low)
            pair = (-t.A * w, 0.0 if t.r < 1 - low else -t.A * w)
        if w > c:
            pair = (-t.A * c * t.logp, -t.A * c)
        yield plus(pair, config.beta, kl(t, config))


def hapo(tokens, config):
    logs = sorted(math.log(t.H) for t in tokens)
    pivot = logs[round(config.quantile * (len(logs) - 1))]
    top, bottom = logs[-1] - pivot, logs[0] - pivot
    for t in tokens:
        h = math.log(t.H) - pivot
        h = h / top if h > 0 else h / (bottom if isinstance(config, HapoReleasedConfig) else abs(bottom))
        low = config.eps_low * (1 - h) if h <= 0 else config.eps_low
        high = config.eps_high * (1 + h) if h > 0 else config.eps_high
        near = 1 - low / 2 <= t.r <= 1 + high / 2
        A = t.A * (1 + h) if near == (h <= 0) else t.A
        yield ppo(t.r, A, low, high, config.dual_clip)


def steer(tokens, config):
    change = [abs(t.A * t.r * (1 - math.exp(t.logp)) * (t.logp + t.H_old)) for t in tokens]
    k = -math.log(config.lambda_min) / max(max(change), 0.02)
    for t, omega in zip(tokens, change, strict=True):
        weight = min(max(math.exp(-k * omega), config.lambda_min), 1)
        loss, slope = ppo(t.r, t.A, config.eps_low, config.eps_high, config.dual_clip)
        yield weight * loss, weight * slope


CASES = [
    (archer, ArcherConfig()),
    (archer, ArcherConfig(beta_r=0.2, beta_k=0.5, dual_clip=3, scope="group", kl_estimator="k2")),
    (archer, ArcherConfig(scope="batch", rho=0.5, tie="knowledge", kl_estimator="k1", kl_max=0.3)),
    (archer, ArcherConfig(entropy_from="current", eps_r=0.3, eps_k=0.1)),
    (archer_k, ArcherKConfig()),
    (archer_k, ArcherKConfig(thresholds=(0.2,), eps=(0.3, 0.1), beta=(0.0, 0.4), tie="knowledge")),
    (clipped, GrpoConfig()),
    (clipped, GrpoConfig(beta=0, dual_clip=2)),
    (clipped, DapoConfig(dual_clip=3)),
    (clipped, DrGrpoConfig()),
    (clipped, PearConfig()),
    (gspo, GspoConfig()),
    (gspo, GspoConfig(eps_low=0.2, eps_high=0.3)),
    (espo, EspoConfig(vocabulary_size=50, alpha=0.3)),
    (cispo, CispoConfig()),
    (gppo, GppoConfig()),
    (gppo, CeGppoConfig(beta_1=0.5, beta_2=0.9, dual_clip=2)),
    (eighty_twenty, EightyTwentyConfig(denominator="all")),
    (eighty_twenty, EightyTwentyConfig(entropy_from="old", denominator="all", scope="group")),
    (ar, ArLoptiConfig(eta=None)),
    (ar, ArLoptiConfig(eta=0.3, beta=0.2)),
    (kl_cov, KLCovConfig(share=0.2)),
    (entropy_advantage, EntropyAdvantageConfig()),
    (aspo, AspoConfig(soft_dual_clip=1.5)),
    (aspo, AspoReleasedConfig(soft_dual_clip=1.5)),
    (hapo, HapoConfig()),
    (hapo, HapoReleasedConfig()),
    (steer, SteerConfig()),
]


def share_of_loss(config, tokens):
    """Weight of each token in the aggregated loss."""
    lengths = defaultdict(int)
    for t in tokens:
        lengths[t.row] += 1
    return {
        "token-mean": [1 / len(tokens) for t in tokens],
        "seq-mean-token-mean": [1 / lengths[t.row] / len(lengths) for t in tokens],
        "constant-length": [1 / len(lengths) / (config.constant_length or 1) for t in tokens],
    }[config.aggregation]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("reference", "config"), CASES, ids=[f"{c.method}-{i}" for i, (_, c) in enumerate(CASES)]
)
def test_agrees_with_the_reference(reference, config, seed, random_batch, evaluate):
    batch = random_batch(seed, ties=seed % 2 == 1)
    tokens = tokens_of(batch)
    share = share_of_loss(config, tokens)
    loss, slope = zip(*reference(tokens, config), strict=True)
    outcome = evaluate(batch, config)
    assert outcome.loss == pytest.approx(sum(map(mul, share, loss)), abs=1e-9)
    got = [float(outcome.grad[t.row, t.column]) for t in tokens]
    assert got == pytest.approx(list(map(mul, share, slope)), abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_released_archer_agrees_with_the_reference(seed, aggregation, random_batch, evaluate):
    config = ArcherReleasedConfig(aggregation=aggregation, beta_r=0.3, beta_k=0.7, kl_max=0.2)
    batch = random_batch(seed, ties=seed % 2 == 1)
    tokens = tokens_of(batch)
    high = reached(tokens, config, config.rho)
    policy = [p[0] for p in archer_released(tokens, config)]

    def micro_batch_loss(chosen):
        loss = mean(x for t, x in zip(tokens, policy, strict=True) if t in chosen)
        for beta, role in ((config.beta_r, True), (config.beta_k, False)):
            values = [kl(t, config)[0] for t in chosen if (id(t) in high) == role]
            loss += beta * mean(values) if values else 0
        return loss

    split = [tokens] if aggregation == "token-mean" else list(by_pool(tokens, "response"))
    assert evaluate(batch, config).loss == pytest.approx(mean(micro_batch_loss(m) for m in split), abs=1e-9)
