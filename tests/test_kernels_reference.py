"""The plain torch kernels against float64 numpy, written from the definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from logit_kernels import reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def ordered(row):
    """Ids of a float64 row, best first, ties by lower id."""
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


def expected_statistics(row, own):
    probs = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    entropy = -sum(p * math.log(p) for p in probs if p > 0)
    return math.log(np.exp(row - row.max()).sum()), entropy, 1 + int((row > row[own]).sum())


def expected_kept(row, min_p, top_k, top_p):
    """Ids that survive, and who cut the others: 1 min-p, 2 top-k, 3 top-p. A row of float64 with something above −inf."""
    reason = dict.fromkeys(range(len(row)), 0)
    alive = [i for i in ordered(row) if row[i] > -np.inf]
    if min_p > 0:
        kept = [i for i in alive if row[i] - row[alive[0]] >= math.log(min_p)]
        reason |= dict.fromkeys(set(alive) - set(kept), 1)
        alive = kept
    if 0 < top_k < len(alive):
        kept = [i for i in alive if row[i] >= row[alive[top_k - 1]]]
        reason |= dict.fromkeys(set(alive) - set(kept), 2)
        alive = kept
    if top_p < 1:
        weights = np.exp(row[alive] - row[alive[0]])
        before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
        kept = [i for i, mass in zip(alive, before) if mass < top_p * np.cumsum(weights)[-1]]
        reason |= dict.fromkeys(set(alive) - set(kept), 3)
        alive = kept
    return alive, [reason[i] for i in range(len(row))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 7), (3, 1000), (2, 49152)])
def test_statistics_equal_float64(shape, dtype):
    generator = torch.Generator().manual_seed(shape[1])
    logits = (torch.randn(shape, generator=generator) * 4).to(dtype)
    own = torch.randint(0, shape[1], (shape[0],), generator=generator)
    n = min(10, shape[1])
    got = reference.row_statistics(logits, own, n)
    for r, row in enumerate(logits.double().numpy()):
        log_sum, entropy, rank = expected_statistics(row, int(own[r]))
        assert got.log_sum[r].item() == pytest.approx(log_sum, rel=1e-5, abs=1e-5)
        assert got.entropy[r].item() == pytest.approx(entropy, rel=1e-5, abs=1e-5)
        assert got.own_rank[r].item() == rank
        assert got.top_ids[r].tolist() == ordered(row)[:n]
        assert got.top_values[r].tolist() == [row[i] for i in ordered(row)[:n]]
        assert got.own_value[r].item() == row[own[r]]


def test_statistics_keep_their_digits_under_a_common_offset():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    own = torch.tensor([0])
    near, far = reference.row_statistics(logits, own, 1), reference.row_statistics(logits + 1e5, own, 1)
    assert torch.equal(near.log_sum, far.log_sum)


def test_a_token_that_cannot_occur_adds_nothing_and_counts_in_no_rank():
    got = reference.row_statistics(torch.tensor([[-torch.inf, 2.0, -torch.inf]]), torch.tensor([2]), 2)
    assert got.entropy.item() == 0.0
    assert got.finite.item() == 1
    assert got.own_rank.item() == 2
    assert got.top_ids.tolist() == [[1, 0]]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_row_with_nan_or_inf_is_reported_and_no_other(bad):
    logits = torch.zeros(3, 5)
    logits[1, 3] = bad
    assert reference.row_statistics(logits, torch.zeros(3, dtype=torch.long), 1).has_nan.tolist() == [False, True, False]


def test_a_row_with_nan_leaves_the_ties_of_the_others_alone():
    logits = torch.zeros(2, 50)
    logits[1, 3] = torch.nan
    assert reference.row_statistics(logits, torch.zeros(2, dtype=torch.long), 4).top_ids[0].tolist() == [0, 1, 2, 3]


# few different values, so that ties are common; quarters, so that they are exact
values = st.one_of(st.just(-math.inf), st.integers(-20, 20).map(lambda quarter: quarter / 4))
rows = st.lists(values, min_size=1, max_size=16).filter(lambda row: max(row) > -math.inf)


@settings(deadline=None, max_examples=300)
@given(
    row=rows,
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    top_k=st.integers(0, 18),
    top_p=st.sampled_from([1e-12, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0]),
)
def test_filters_keep_what_the_definition_keeps(row, min_p, top_k, top_p):
    logits = torch.tensor([row], dtype=torch.float32)
    got = reference.filter_thresholds(logits, min_p, top_k, top_p, raw=logits)
    kept, reasons = expected_kept(logits[0].double().numpy(), min_p, top_k, top_p)
    assert reference.cut_reason(logits, torch.arange(len(row))[None], got)[0].tolist() == reasons
    assert got.kept.item() == len(kept)
    x = logits[0].double()
    assert got.kept_mass.item() == pytest.approx(x.softmax(dim=0)[kept].sum().item(), abs=1e-6)
    assert got.log_sum_kept.item() == pytest.approx((x[kept].logsumexp(dim=0) - x.max()).item(), abs=1e-6)
    log_probs = x[kept].log_softmax(dim=0)
    assert got.entropy_kept.item() == pytest.approx(-(log_probs.exp() * log_probs).sum().item(), abs=1e-6)


def test_top_p_keeps_the_lowest_ids_of_a_tie():
    got = reference.filter_thresholds(torch.zeros(1, 1000), 0.0, 0, 0.1)
    assert (got.kept.item(), got.top_p_value.item(), got.top_p_last_id.item()) == (100, 0.0, 99)


def test_filters_that_are_off_cut_nothing():
    logits = torch.tensor([[1.0, -torch.inf, 3.0]])
    got = reference.filter_thresholds(logits, 0.0, 5, 1.0)
    assert (got.kept.item(), got.min_p_value.item(), got.top_k_value.item(), got.top_p_value.item()) == (2, *[-math.inf] * 3)


def test_fused_head_equals_the_stored_logits():
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(3, 8, generator=generator), torch.randn(20, 8, generator=generator)
    own, bias_ids = torch.tensor([1, 2, 3]), torch.tensor([2, 7])
    bias = torch.tensor([-torch.inf, 3.0])
    got = reference.fused_head(
        hidden,
        weight,
        own,
        4,
        torch.tensor([5]),
        softcap=3.0,
        scale=0.5,
        temperature=0.7,
        bias_ids=bias_ids,
        bias_values=bias,
        rounded=False,
    )
    raw = 3.0 * np.tanh(hidden.double().numpy() @ weight.double().numpy().T * 0.5 / 3.0)
    adjusted = raw.copy()
    adjusted[:, bias_ids] += bias.numpy()
    adjusted /= 0.7
    for r in range(3):
        assert got.raw.top_ids[r].tolist() == ordered(raw[r])[:4]
        assert got.adjusted.top_ids[r].tolist() == ordered(adjusted[r])[:4]
        assert got.requested_values[r].item() == pytest.approx(raw[r, 5])
        for statistics, row in ((got.raw, raw[r]), (got.adjusted, adjusted[r])):
            if row[own[r]] > -np.inf:
                assert statistics.own_rank[r].item() == 1 + int((row > row[own[r]]).sum())
            assert statistics.log_sum[r].item() == pytest.approx(math.log(np.exp(row - row.max()).sum()))
