"""The definitions of the scores in float64, row by row, written from the specification and sharing no code with it.

A row of logits is a float64 numpy array of length V; −inf is a token that cannot occur.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Settings:
    """Sampling parameters in ids. stop_ids: what min_tokens holds back."""

    allowed: tuple = None
    bad_words: tuple = ()
    min_tokens: int = 0
    stop_ids: tuple = ()
    bias: dict = None
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    temperature: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    top_p: float = 1.0


def softmax(row):
    if row.max() == -np.inf:  # nothing is left
        return np.zeros_like(row)
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def log_softmax(row):
    return row - row.max() - math.log(np.exp(row - row.max()).sum())


def rank(row, token_id):
    return 1 + sum(1 for value in row if value > row[token_id])


def entropy(row):
    return -sum(p * math.log(p) for p in softmax(row) if p > 0)


def top(row, n):
    """The n best ids, ties by lower id."""
    return sorted(range(len(row)), key=lambda i: (-row[i], i))[:n]


def allow_only(row, ids):
    return np.array([value if i in ids else -np.inf for i, value in enumerate(row)])


def cut_bad_words(row, words, generated):
    out = row.copy()
    for word in words:
        *rest, last = word
        if generated[len(generated) - len(rest) :] == rest and len(generated) >= len(rest):
            out[last] = -np.inf
    return out


def hold_back(row, stop_ids, min_tokens, generated):
    out = row.copy()
    if len(generated) < min_tokens:
        for i in stop_ids:
            out[i] = -np.inf
    return out


def add_bias(row, bias):
    out = row.copy()
    for i, amount in bias.items():
        out[i] += amount
    return out


def penalise_repetition(row, r, prompt, generated):
    out = row.copy()
    for i in {*prompt, *generated}:
        out[i] = out[i] / r if out[i] > 0 else out[i] * r
    return out


def penalise_frequency(row, f, generated):
    out = row.copy()
    for i, count in Counter(generated).items():
        out[i] -= f * count
    return out


def penalise_presence(row, p, generated):
    out = row.copy()
    for i in set(generated):
        out[i] -= p
    return out


def keep_min_p(row, min_p):
    probs = softmax(row)
    return np.where(probs < min_p * probs.max(), -np.inf, row)


def keep_top_k(row, k):
    if k >= len(row):
        return row.copy()
    kth = sorted(row, reverse=True)[k - 1]
    return np.array([value if value >= kth else -np.inf for value in row])


def keep_top_p(row, p):
    probs, out, before = softmax(row), np.full_like(row, -np.inf), 0.0
    for i in top(row, len(row)):
        if before < p:
            out[i] = row[i]
        before += probs[i]
    return out


def pipeline(row, settings, prompt, generated):
    """[(name of the step, the row after it)] of the steps that are on, in the engine's order."""
    s, prompt, generated = settings, list(prompt), list(generated)
    greedy = s.temperature < 1e-5
    steps = [
        ("allowed_token_ids", s.allowed is not None, lambda x: allow_only(x, s.allowed)),
        ("bad_words", bool(s.bad_words), lambda x: cut_bad_words(x, s.bad_words, generated)),
        ("min_tokens", s.min_tokens > 0, lambda x: hold_back(x, s.stop_ids, s.min_tokens, generated)),
        ("logit_bias", bool(s.bias), lambda x: add_bias(x, s.bias)),
        ("repetition_penalty", s.repetition != 1, lambda x: penalise_repetition(x, s.repetition, prompt, generated)),
        ("frequency_penalty", s.frequency != 0, lambda x: penalise_frequency(x, s.frequency, generated)),
        ("presence_penalty", s.presence != 0, lambda x: penalise_presence(x, s.presence, generated)),
        ("temperature", not greedy and s.temperature != 1, lambda x: x / s.temperature),
        ("min_p", not greedy and s.min_p > 0, lambda x: keep_min_p(x, s.min_p)),
        ("top_k", not greedy and s.top_k > 0, lambda x: keep_top_k(x, s.top_k)),
        ("top_p", not greedy and s.top_p < 1, lambda x: keep_top_p(x, s.top_p)),
    ]
    after, row = [], np.asarray(row, dtype=np.float64)
    for name, is_on, step in steps:
        if is_on:
            row = step(row)
            after.append((name, row))
    return after


def cut_by(raw, steps, token_id):
    """The first step after which the token is −inf, empty if it survives."""
    return next((name for name, row in steps if row[token_id] == -np.inf), "") if raw[token_id] > -np.inf else ""


def kept(raw, processed):
    """Number of surviving tokens, and their raw probability mass."""
    alive = np.isfinite(processed)
    return int(alive.sum()), float(softmax(raw)[alive].sum())
