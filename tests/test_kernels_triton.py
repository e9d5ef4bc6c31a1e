"""The Triton kernels, interpreted on the CPU, against the float64 reference.

The interpreter must be chosen before Triton is imported: run by pytest, this file runs itself again with it chosen.
"""

import math
import os
import subprocess
import sys
from dataclasses import fields

import pandas as pd
import pytest
import tiny_models
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernels_cpu import FILTERS, adjustment, check

import logit_kernels
from inspector import Inspector, SamplingParams
from inspector.forward import Head
from logit_kernels import Adjustment, LinearHead, reference

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    from logit_kernels.triton_filters import filter_thresholds
    from logit_kernels.triton_fused_head import fused_head
    from logit_kernels.triton_row_statistics import row_statistics

interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs under the interpreter")

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(1, 7), (3, 1000), (4, 49152), (2, 151936)]
EXACT = {"finite", "own_rank", "top_ids", "has_nan", "min_p_value", "top_k_value", "top_p_value", "top_p_last_id", "kept"}


@pytest.mark.skipif(INTERPRETED, reason="is the run itself")
def test_triton_kernels_under_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


def random_logits(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(shape, generator=generator) * 4).to(dtype)
    own = torch.randint(0, shape[1], (shape[0],), generator=generator)
    return logits, own


def assert_equal(got, expected):
    """Ids, counts and thresholds exactly; values to 1e-5. Rows with a NaN have only the flag in common."""
    valid = ~expected.has_nan if hasattr(expected, "has_nan") else slice(None)
    for field in fields(expected):
        a, b = getattr(got, field.name), getattr(expected, field.name)
        if field.name == "has_nan":
            assert torch.equal(a, b)
        elif b is None:
            assert a is None
        elif field.name in EXACT:
            assert a[valid].tolist() == b[valid].tolist(), field.name
        else:
            torch.testing.assert_close(a[valid].double(), b[valid].double(), rtol=1e-5, atol=1e-5, equal_nan=True)


def edited(logits, ids, values, temperature):
    """The adjusted rows as the definition has them, float32 division, float64 sums."""
    x = logits.float().clone()
    x[:, ids] = values.expand(x.shape[0], -1)
    return (x / temperature).double()


@interpreted
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_raw_and_adjusted_statistics_in_one_pass(shape, dtype):
    logits, own = random_logits(shape, dtype)
    generator = torch.Generator().manual_seed(1)
    some = torch.randperm(shape[1], generator=generator)[: min(300, shape[1] // 2)]
    ids = torch.cat([some, own[:1]]).unique()
    values = torch.randn(shape[0], ids.shape[0], generator=generator) * 6
    values[:, 0] = -torch.inf
    raw, adjusted = row_statistics(logits, own, 10, temperature=0.8, edit_ids=ids, edit_values=values)
    assert_equal(raw, reference.row_statistics(logits.double(), own, 10))
    assert_equal(adjusted, reference.row_statistics(edited(logits, ids, values, 0.8), own, 10))


@interpreted
@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_of_strided_rows(dtype):
    logits, own = random_logits((3, 1111), dtype)
    rows = logits[:, 5:1010]
    raw, adjusted = row_statistics(rows, own % 1005, 10)
    assert adjusted is raw
    assert_equal(raw, reference.row_statistics(rows.double(), own % 1005, 10))


@interpreted
def test_statistics_of_unusual_rows():
    logits, own = random_logits((8, 300), torch.float32)
    logits[0] = -torch.inf
    logits[1] = -torch.inf
    logits[1, 299] = 3.0
    logits[2] = 1.5
    logits[3, 200] = torch.nan
    logits[4, 7] = torch.inf
    logits[5] = (logits[5] * 0.5).round()  # many ties
    logits[6, ::2], logits[6, 1::2] = 0.0, -0.0
    logits[7] += 1e4
    logits[7, ::3] = -torch.inf
    raw, _ = row_statistics(logits, own, 30)
    assert_equal(raw, reference.row_statistics(logits.double(), own, 30))
    assert int(raw.top_ids.max()) < 300 and int(raw.top_ids.min()) >= 0


@interpreted
def test_an_edited_token_that_dominated_leaves_the_digits_of_the_rest():
    logits, own = random_logits((2, 1000), torch.float32)
    logits[:, 17] = 200.0
    ids, values = torch.tensor([17]), torch.tensor([[-torch.inf]])
    raw, adjusted = row_statistics(logits, own, 5, edit_ids=ids, edit_values=values.expand(2, 1))
    assert_equal(raw, reference.row_statistics(logits.double(), own, 5))
    assert_equal(adjusted, reference.row_statistics(edited(logits, ids, values, 1.0), own, 5))


@interpreted
def test_a_hundred_best_of_ties():
    logits = (random_logits((1, 400), torch.float32)[0] * 0.5).round()
    raw, _ = row_statistics(logits, torch.tensor([3]), 100)
    assert_equal(raw, reference.row_statistics(logits.double(), torch.tensor([3]), 100))


@interpreted
def test_all_columns_but_a_few_cut():
    logits, own = random_logits((2, 700), torch.float32)
    ids = torch.tensor([i for i in range(700) if i not in (3, 650)])
    values = torch.full((1, 698), -torch.inf).expand(2, -1)
    _, adjusted = row_statistics(logits, own, 5, edit_ids=ids, edit_values=values)
    assert_equal(adjusted, reference.row_statistics(edited(logits, ids, values, 1.0), own, 5))


@interpreted
def test_logits_that_a_division_makes_equal_tie():
    base = torch.tensor(3.0)
    neighbours = [base]
    for _ in range(7):
        neighbours.append(neighbours[-1].nextafter(torch.tensor(9.0)))
    logits = torch.stack(neighbours).expand(8, 8).contiguous()
    _, adjusted = row_statistics(logits, torch.arange(8), 8, temperature=1.7)
    assert_equal(adjusted, reference.row_statistics((logits / 1.7).double(), torch.arange(8), 8))


@interpreted
def test_what_row_statistics_refuses():
    logits, own = random_logits((2, 10), torch.float32)
    with pytest.raises(ValueError, match="top_n must be between 0 and 100, got 101"):
        row_statistics(logits, own, 101)
    with pytest.raises(ValueError, match="adjacent columns"):
        row_statistics(logits.double(), own, 1)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        row_statistics(logits, own, 1, temperature=0.0)
    with pytest.raises(ValueError, match="go together"):
        row_statistics(logits, own, 1, edit_ids=own)


def assert_filters_equal(logits, min_p, top_k, top_p):
    raw = reference.row_statistics(logits.float(), torch.zeros(logits.shape[0], dtype=torch.long), 1)
    got = filter_thresholds(logits, min_p, top_k, top_p, raw=logits, raw_maximum=raw.maximum, raw_log_sum=raw.log_sum)
    assert_equal(got, reference.filter_thresholds(logits, min_p, top_k, top_p, raw=logits))


@interpreted
@pytest.mark.parametrize("settings", [(0.02, 50, 0.95), (0.0, 0, 0.999), (0.0, 10**6, 1e-9)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_filters_find_the_thresholds_of_a_sort(shape, dtype, settings):
    logits, _ = random_logits(shape, dtype)
    assert_filters_equal(logits, *settings)


@interpreted
@pytest.mark.parametrize("settings", [(0.1, 0, 1.0), (0.0, 7, 1.0), (0.0, 0, 0.5), (1.0, 3, 0.1), (0.0, 0, 1.0)])
def test_filters_of_unusual_rows(settings):
    logits, _ = random_logits((5, 300), torch.float32)
    logits[0] = -torch.inf
    logits[0, 5] = 2.0
    logits[1] = 1.5
    logits[2] = (logits[2] * 0.5).round()
    logits[3, ::2], logits[3, 1::2] = 0.0, -0.0
    logits[4, ::3] = -torch.inf
    assert_filters_equal(logits[:, 10:] if settings == (0.0, 7, 1.0) else logits, *settings)


@interpreted
def test_filters_end_on_rows_that_hold_nothing_or_a_nan():
    logits = torch.zeros(3, 20)
    logits[0] = -torch.inf
    logits[1, 3] = torch.nan
    logits[2, 3] = torch.inf
    assert filter_thresholds(logits, 0.1, 5, 0.9).kept[0].item() == 0


values = st.one_of(st.just(-math.inf), st.integers(-20, 20).map(lambda quarter: quarter / 4))
rows = st.lists(values, min_size=9, max_size=9).filter(lambda row: max(row) > -math.inf)


@interpreted
@settings(deadline=None, max_examples=20, derandomize=True, database=None)
@given(
    batch=st.lists(rows, min_size=3, max_size=3),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    top_k=st.integers(0, 10),
    top_p=st.sampled_from([1e-12, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0]),
)
def test_filters_of_generated_rows(batch, min_p, top_k, top_p):
    assert_filters_equal(torch.tensor(batch), min_p, top_k, top_p)


def exact_head(rows, V, H, dtype):
    """Eighths, so that every dot product is exact in float32 whatever its order, and ranks can be compared."""
    generator = torch.Generator().manual_seed(V)
    hidden = (torch.randint(-16, 17, (rows, H), generator=generator) / 8).to(dtype)
    weight = (torch.randint(-16, 17, (V, H), generator=generator) / 8).to(dtype)
    return hidden, weight, torch.randint(0, V, (rows,), generator=generator)


def assert_heads_equal(hidden, weight, own, **options):
    requested = torch.tensor([0, weight.shape[0] - 1, 3])
    got = fused_head(hidden, weight, own, 10, requested, **options)
    expected = reference.fused_head(hidden, weight, own, 10, requested, **options)
    assert_equal(got.raw, expected.raw)
    assert_equal(got.adjusted, expected.adjusted)
    torch.testing.assert_close(got.requested_values.double(), expected.requested_values, rtol=1e-5, atol=1e-5)


@interpreted
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "V", "H"), [(1, 7, 5), (3, 1000, 64), (4, 49152, 32)])
def test_fused_head_equals_stored_logits(rows, V, H, dtype):
    hidden, weight, own = exact_head(rows, V, H, dtype)
    bias = {"bias_ids": torch.tensor([1, 4, 5]), "bias_values": torch.tensor([-torch.inf, 2.5, 9.0])}
    assert_heads_equal(hidden, weight, own, temperature=1.3, **bias)


@interpreted
def test_fused_head_in_blocks_of_rows():
    hidden, weight, own = exact_head(18, 300, 16, torch.bfloat16)
    assert_heads_equal(hidden, weight, own)


@interpreted
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_head_scales_and_caps(dtype):
    hidden, weight, own = exact_head(2, 500, 24, dtype)
    assert_heads_equal(hidden, weight, own, scale=0.5, softcap=30.0, rounded=False)


@interpreted
def test_fused_head_rounds_the_logits_as_a_model_does():
    hidden, weight, own = exact_head(2, 500, 24, torch.bfloat16)
    stored = hidden @ weight.T
    got = fused_head(hidden, weight, own, 5, torch.arange(500))
    assert torch.equal(got.requested_values, stored.float())
    assert got.raw.own_rank.tolist() == (1 + (stored > stored.gather(1, own[:, None])).sum(dim=1)).tolist()
    exact = fused_head(hidden, weight, own, 5, torch.arange(500), rounded=False)
    assert torch.equal(exact.requested_values, hidden.float() @ weight.float().T)


@interpreted
@pytest.mark.parametrize("options", FILTERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_whole_rows_are_scored_as_float64_does(dtype, options):
    logits, own = random_logits((3, 1000), dtype)
    edits = {0: (-torch.inf, 2), 3: (20.0, 0), 17: (-5.0, 0), 999: (-torch.inf, 3)}
    requested = torch.tensor([0, 5, 17])
    check(logits, own, adjustment(3, **options), requested=requested, path="triton")
    check(logits, own, adjustment(3, edits, **options), requested=requested, path="triton")


@interpreted
def test_only_listed_tokens_are_left_where_the_others_are_cut():
    logits, own = random_logits((2, 500), torch.float32)
    edits = {7: (logits[0, 7].item(), 0), 400: (1.5, 0)}
    check(logits, own, adjustment(2, edits, outside_code=1, top_p=0.9), requested=torch.tensor([400]), path="triton")


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("temperature", "bias"), [(1.0, {}), (0.7, {}), (1.0, {3: 2.5}), (1.7, {0: -30.0, 3: 2.5, 299: 64.0})])
def test_hidden_states_are_scored_as_their_logits(dtype, temperature, bias):
    hidden, weight, own = exact_head(5, 300, 24, dtype)
    own[0] = 299
    ids, values = torch.tensor(sorted(bias), dtype=torch.long), torch.tensor([bias[i] for i in sorted(bias)])
    logits = hidden @ weight.T
    scores = logit_kernels.score_hidden(hidden, LinearHead(weight), own, 5, temperature, ids, values)
    edited = logits[:, ids].float() + values
    same = Adjustment(ids, edited, torch.zeros(edited.shape, dtype=torch.int8), temperature=temperature)
    check(logits, own, same, scores=scores)


@interpreted
@pytest.mark.parametrize("architecture", ["llama", "gemma2", "cohere", "granite"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.6, "logit_bias": {5: 3.0, 290: 8.0}}], ids=["raw", "adjusted"])
def test_a_model_is_scored_without_its_logits(architecture, options, monkeypatch):
    """Soft-caps and scales of real architectures, against the path that stores every logit."""
    tokenizer = tiny_models.sentencepiece_tokenizer() if architecture == "gemma2" else tiny_models.byte_level_tokenizer()
    loaded = tiny_models.inspector(getattr(tiny_models, architecture)(), tokenizer).loaded
    prompt, params = list(range(3, 12)), SamplingParams(**options)
    stored = Inspector(loaded, kernel_path="torch").inspect(prompt, params=params, top_n=4)
    inspector = Inspector(loaded, kernel_path="triton")
    monkeypatch.setattr(Head, "__call__", lambda *_: pytest.fail("the logits were stored"))
    headless = inspector.inspect(prompt, params=params, top_n=4)
    pd.testing.assert_frame_equal(headless.tokens, stored.tokens, rtol=1e-4, atol=1e-4)
    pd.testing.assert_frame_equal(headless.alternatives, stored.alternatives, rtol=1e-4, atol=1e-4)


@interpreted
@pytest.mark.parametrize("options", [{"params": SamplingParams(top_k=5)}, {"token_ids": [7]}], ids=["filter", "requested"])
def test_what_needs_the_logits_gets_them(options):
    loaded = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer()).loaded
    stored = Inspector(loaded, kernel_path="torch").inspect(list(range(3, 20)), top_n=4, **options)
    scored = Inspector(loaded, kernel_path="triton").inspect(list(range(3, 20)), top_n=4, **options)
    pd.testing.assert_frame_equal(scored.tokens, stored.tokens, rtol=1e-4, atol=1e-4)
