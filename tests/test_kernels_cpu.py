"""The CPU kernel against a plain float64 definition in numpy, row by row."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from logit_kernels import Adjustment, FilterCodes, score_rows

CODES = FilterCodes(min_p=9, top_k=10, top_p=11)
NONE = torch.empty(0, dtype=torch.long)


def adjustment(rows, edits=None, **options):
    """edits: {id: (value, code)} for every row."""
    ids = sorted(edits or {})
    values = torch.tensor([[edits[i][0] for i in ids]] * rows, dtype=torch.float32).reshape(rows, len(ids))
    codes = torch.tensor([[edits[i][1] for i in ids]] * rows, dtype=torch.int8).reshape(rows, len(ids))
    return Adjustment(torch.tensor(ids, dtype=torch.long), values, codes, codes=CODES, **options)


def expected(row, own, adj, index):
    """One row's values and what cut each token, in float64, by sorting everything."""
    raw = row.astype(np.float64)
    y32 = row.astype(np.float32) if not adj.outside_code else np.full(len(row), -np.inf, np.float32)
    cut = np.zeros(len(row), int) if not adj.outside_code else np.full(len(row), adj.outside_code)
    for e, token in enumerate(adj.edit_ids.tolist()):
        y32[token] = adj.edit_values[index, e]
        cut[token] = adj.edit_codes[index, e]
    y = (y32 / np.float32(adj.temperature)).astype(np.float64)
    alive = y > -np.inf

    def drop(mask, code):
        cut[mask & alive] = code
        alive[mask] = False

    if adj.min_p > 0:
        drop(y < y.max() + np.log(adj.min_p), CODES.min_p)
    if 0 < adj.top_k < len(y):
        kth = np.sort(y[alive])[::-1][: adj.top_k][-1]
        everyone = np.sort(y)[::-1][adj.top_k - 1]
        drop(y < max(kth, everyone), CODES.top_k)
    if adj.top_p < 1:
        order = np.lexsort((np.arange(len(y)), -y))
        order = order[alive[order]]
        p = np.exp(y[order] - y.max())
        before = np.cumsum(p) - p
        lost = np.zeros(len(y), bool)
        lost[order[before >= adj.top_p * p.sum()]] = True
        drop(lost, CODES.top_p)

    def logprobs(x):
        return x - x.max() - np.log(np.exp(x - x.max()).sum())

    processed = np.where(alive, y, -np.inf)
    p = np.exp(logprobs(processed)[alive])
    return {
        "raw_logit": raw[own], "raw_logprob": logprobs(raw)[own], "processed_logit": processed[own],
        "processed_logprob": logprobs(processed)[own], "raw_rank": 1 + (raw > raw[own]).sum(),
        "processed_rank": 1 + (processed > processed[own]).sum() if alive[own] else -1,
        "raw_entropy": -(np.exp(logprobs(raw)) * np.where(raw > -np.inf, logprobs(raw), 0)).sum(),
        "processed_entropy": -(p * np.log(p)).sum(), "kept_tokens": alive.sum(), "kept_mass": np.exp(logprobs(raw))[alive].sum(),
        "cut_by": cut[own],
    }, cut  # fmt: skip


def check(logits, own, adj, top_n=5, requested=NONE, atol=2e-5, path="numba", scores=None):
    scores = scores or score_rows(logits, own, requested, top_n, adj, path)
    rows = logits.float().numpy()
    for r in range(len(rows)):
        want, cut = expected(rows[r], int(own[r]), adj, r)
        for name, value in want.items():
            got = getattr(scores, name)[r].item()
            if isinstance(value, (int, np.integer)):
                assert got == value, (name, r, got, value)
            else:
                assert got == pytest.approx(value, rel=1e-5, abs=atol), (name, r)
        best = np.lexsort((np.arange(len(rows[r])), -rows[r]))[:top_n]
        best = [int(i) for i in best if rows[r][i] > -np.inf]
        ids = scores.candidate_ids[r].tolist()
        assert ids[: len(best)] == best
        assert len([i for i in ids if i >= 0]) == len({i for i in ids if i >= 0})
        assert {int(own[r]), *requested.tolist()} <= set(ids)
        for place, token in enumerate(ids):
            if token >= 0:
                assert scores.candidate_cut_by[r, place] == cut[token]
                assert scores.candidate_raw_rank[r, place] == 1 + (rows[r] > rows[r][token]).sum()


FILTERS = [
    {},
    {"temperature": 0.7},
    {"top_k": 3},
    {"top_k": 50, "top_p": 0.9, "min_p": 0.02, "temperature": 0.8},
    {"top_p": 0.3},
    {"top_p": 0.95},
    {"top_p": 1e-9},
    {"min_p": 0.2},
    {"top_k": 10**7},
    # more survivors than are sorted as they are, above a floor
    {"top_k": 5000, "top_p": 0.9},
    {"min_p": 1e-5, "top_p": 0.97, "temperature": 1.5},
]


@pytest.mark.parametrize("options", FILTERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 7), (3, 1000), (4, 49152), (2, 151936)], ids=str)
def test_agrees_with_float64(shape, dtype, options):
    generator = torch.Generator().manual_seed(shape[1])
    logits = (torch.randn(shape, generator=generator) * 4).to(dtype)
    own = torch.randint(shape[1], (shape[0],), generator=generator)
    check(logits, own, adjustment(shape[0], **options), requested=torch.tensor([0, 5]))


@pytest.mark.parametrize("options", FILTERS, ids=str)
def test_edits_come_before_the_temperature_and_cut_with_their_code(options):
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(1)) * 3
    edits = {0: (-torch.inf, 2), 3: (20.0, 0), 17: (-5.0, 0), 999: (-torch.inf, 3)}
    for own in ([0, 3, 5], [17, 999, 998]):
        check(logits, torch.tensor(own), adjustment(3, edits, **options), requested=torch.tensor([0, 3, 17, 999]))


def test_only_listed_tokens_are_left_where_the_others_are_cut():
    logits = torch.randn(2, 500, generator=torch.Generator().manual_seed(2))
    edits = {7: (logits[0, 7].item(), 0), 400: (1.5, 0)}
    check(logits, torch.tensor([7, 8]), adjustment(2, edits, outside_code=1, top_p=0.9), requested=torch.tensor([400]))


def test_strided_rows():
    whole = torch.randn(4, 2000, generator=torch.Generator().manual_seed(3)) * 3
    for view in (whole[:, :1000], whole[::2], whole.T[:500, :3].T):
        check(view, torch.zeros(len(view), dtype=torch.long), adjustment(len(view), top_k=20, top_p=0.8))


def test_all_equal_ties_go_to_lower_ids():
    check(torch.zeros(1, 300), torch.tensor([299]), adjustment(1, top_p=0.5), top_n=4)
    check(torch.zeros(1, 300), torch.tensor([0]), adjustment(1, top_k=2), top_n=100)


def test_all_cut_but_one():
    logits = torch.full((1, 300), -torch.inf)
    logits[0, 77] = -3.0
    check(logits, torch.tensor([77]), adjustment(1, top_k=5, top_p=0.9, min_p=0.1))
    check(logits, torch.tensor([77]), adjustment(1))


def test_rows_without_a_usable_number_are_named_and_leave_the_others_alone():
    logits = torch.randn(5, 300)
    logits[1, 3], logits[2, 299], logits[3] = torch.nan, torch.inf, -torch.inf
    scores = score_rows(logits, torch.zeros(5, dtype=torch.long), NONE, 3, adjustment(5, top_k=4), "numba")
    assert scores.bad.tolist() == [0, 1, 1, 0, 0]
    assert scores.kept_tokens.tolist()[3] == 0
    assert scores.kept_tokens[[0, 4]].tolist() == [4, 4]


def test_a_common_offset_costs_no_digits():
    logits = torch.randn(2, 1000, generator=torch.Generator().manual_seed(4))
    shifted = (logits * 1024).round() / 1024 + 4096  # exact in float32
    base = score_rows((logits * 1024).round() / 1024, torch.tensor([1, 2]), NONE, 3, adjustment(2), "numba")
    moved = score_rows(shifted, torch.tensor([1, 2]), NONE, 3, adjustment(2), "numba")
    torch.testing.assert_close(moved.raw_logprob, base.raw_logprob, rtol=0, atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    # whole sixteenths: ties abound, and differences are exact
    st.lists(st.integers(-80, 80).map(lambda i: i / 16) | st.just(-np.inf), min_size=2, max_size=400).filter(lambda r: max(r) > -np.inf),
    st.integers(0, 10**6),
    st.sampled_from([0, 1, 2, 7, 500]),
    st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.1, 1e-9]),
    st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    st.sampled_from([1.0, 0.5, 2.0]),
)
def test_the_filters_keep_what_a_full_sort_keeps(row, own, top_k, top_p, min_p, temperature):
    logits = torch.tensor([row], dtype=torch.float32)
    adj = adjustment(1, top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature)
    check(logits, torch.tensor([own % len(row)]), adj)
