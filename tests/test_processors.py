"""Each processor against the float64 definitions in `oracle.py`, against transformers' own, and on toy rows."""

import numpy as np
import oracle
import pytest
import tiny_models
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from inspector import EmptyRowError, InputError, SamplingParams
from inspector.processors import ResolvedParams, active_processors, batch_context, resolve, run_pipeline, text_context
from inspector.tokens import Vocabulary

INF = float("inf")


def resolved(params, stop_ids=(), bad_words=()):
    return ResolvedParams(params, tuple(stop_ids), tuple(stop_ids), tuple(bad_words), ())


def process(row, prompt=(), generated=(), stop_ids=(), bad_words=(), **fields):
    """One row through the whole pipeline: the processed row and the name of what cut each token."""
    if bad_words:
        fields["bad_words"] = ("stand-in",)  # switches the step on; its ids are given directly
    context = batch_context(
        resolved(SamplingParams(**fields), stop_ids, bad_words), torch.tensor(prompt, dtype=torch.long), [list(generated)]
    )
    out = run_pipeline(torch.tensor([row], dtype=torch.float32), context, ["row"])
    return out.logits[0], [out.names[c - 1] if c else "" for c in out.cut_by[0].tolist()]


def values(row, **options):
    return process(row, **options)[0].tolist()


def logprobs(row, **options):
    return process(row, **options)[0].log_softmax(0).tolist()


def kept(row, **options):
    return [i for i, v in enumerate(values(row, **options)) if v > -INF]


# ---- toy rows with the values written down


def test_temperature_divides_logits_not_logprobs():
    assert logprobs([2.0, 1.0, 0.0], temperature=0.5)[0] == pytest.approx(-0.1429, abs=1e-4)


def test_temperature_then_top_k():
    assert values([2.0, 1.0, 0.0], temperature=0.5, top_k=2) == [4.0, 2.0, -INF]


def test_top_k_renormalises():
    assert logprobs([2.0, 1.0, 0.0], top_k=2)[0] == pytest.approx(-0.3133, abs=1e-4)


def test_mild_temperature():
    assert logprobs([2.0, 1.0, 0.0], temperature=0.8)[0] == pytest.approx(-0.3138, abs=1e-4)


def test_tiny_temperature_above_the_greedy_threshold():
    assert logprobs([2.0, 1.9], temperature=0.0001) == pytest.approx([0.0, -1000.0], abs=0.1)


@pytest.mark.parametrize("temperature", [0.0, 1e-38, 9e-6])
def test_below_the_threshold_temperature_and_truncation_are_skipped(temperature):
    row = [2.0, 1.9, 0.0]
    assert values(row, temperature=temperature, top_k=1, top_p=0.1, min_p=0.9) == pytest.approx(row)


def test_greedy_still_penalises_and_biases():
    got = values([2.0, 1.0, 0.0], temperature=0.0, prompt=[0], repetition_penalty=2.0, logit_bias={2: 0.25})
    assert got == [1.0, 1.0, 0.25]


def test_temperature_at_the_greedy_threshold_is_applied_without_overflow():
    got = torch.tensor(logprobs([3.5, 12.25], temperature=1e-5)).exp()
    assert got.tolist() == [0.0, 1.0]


def test_repetition_penalty_follows_the_sign():
    got = values([3.0, -2.0, 0.0, 5.0], prompt=[0, 1, 2], repetition_penalty=1.3)
    assert got == pytest.approx([2.3077, -2.6, 0.0, 5.0], abs=1e-4)


def test_repetition_penalty_one_is_bit_equal():
    row = torch.randn(50).tolist()
    assert values(row, prompt=[1, 2, 3], repetition_penalty=1.0) == torch.tensor(row).tolist()


def test_penalties_and_the_prompt():
    row, prompt = [0.0] * 7 + [2.0], [7, 7, 7]
    assert values(row, prompt=prompt, presence_penalty=1.0, frequency_penalty=1.0)[7] == 2.0
    assert values(row, prompt=prompt, repetition_penalty=1.3)[7] == pytest.approx(2.0 / 1.3)
    assert values(row, prompt=prompt, generated=[7], presence_penalty=1.0, frequency_penalty=1.0)[7] == 0.0


def test_frequency_counts_and_presence_does_not():
    assert values([1.0, 1.0], generated=[0, 0, 0], frequency_penalty=0.5) == [-0.5, 1.0]
    assert values([1.0, 1.0], generated=[0, 0, 0], presence_penalty=0.5) == [0.5, 1.0]


def test_negative_presence_penalty_raises_the_logit():
    assert values([1.0, 0.0], generated=[0], presence_penalty=-0.5)[0] == 1.5


def test_rows_of_a_batch_are_penalised_by_their_own_tokens_only():
    params = resolved(SamplingParams(frequency_penalty=1.0, repetition_penalty=2.0))
    context = batch_context(params, torch.tensor([3]), [[0], [1, 1]])
    got = run_pipeline(torch.full((2, 4), 4.0), context, ["a", "b"]).logits
    assert got.tolist() == [[1.0, 4.0, 4.0, 2.0], [4.0, 0.0, 4.0, 2.0]]


@pytest.mark.parametrize(("top_p", "survivors"), [(0.75, [0, 1]), (0.76, [0, 1, 2]), (0.5, [0]), (1e-9, [0])])
def test_top_p_at_exact_borders(top_p, survivors):
    row = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().tolist()
    assert kept(row, top_p=top_p) == survivors


def test_top_p_ties_go_to_the_lower_id():
    assert kept([0.0, 0.0, 0.0, 0.0], top_p=0.3) == [0, 1]


def test_top_p_sees_the_renormalised_row_after_top_k():
    row = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().tolist()
    assert kept(row, top_k=2, top_p=0.5) == [0]


def test_top_p_keeps_its_border_over_a_large_vocabulary():
    """A float32 sum over the vocabulary misplaces borders that are further than 1e-6 from p."""
    generator = torch.Generator().manual_seed(5)
    row = torch.randn(50_000, generator=generator) * 2
    probs = torch.sort(row.double().softmax(0), descending=True).values
    before = probs.cumsum(0) - probs
    for count in (100, 1000, 9000):
        middle = float(before[count - 1] + before[count]) / 2
        assert len(kept(row.tolist(), top_p=middle)) == count
        assert len(kept(row.tolist(), top_p=float(before[count]) + 2e-8)) == count + 1
        assert len(kept(row.tolist(), top_p=float(before[count]) - 2e-8)) == count


def test_top_k_keeps_ties_with_the_kth():
    assert kept([4.0, 1.0, 1.0, 1.0, 0.0], top_k=2) == [0, 1, 2, 3]


def test_top_k_gives_the_same_in_a_batch():
    context = batch_context(resolved(SamplingParams(top_k=2)), torch.tensor([0]), [[]] * 8)
    got = run_pipeline(torch.tensor([[4.0, 1.0, 1.0, 1.0, 0.0]] * 8), context, ["r"] * 8).logits
    assert (got > -INF).sum(dim=1).tolist() == [4] * 8


@pytest.mark.parametrize("top_k", [100, 5_000_000, 0, -1])
def test_top_k_of_the_whole_vocabulary_or_off_cuts_nothing(top_k):
    assert len(kept(torch.randn(100).tolist(), top_k=top_k)) == 100


def test_top_k_keeps_finite_tokens_only_when_fewer_are_left():
    assert kept([1.0, 2.0, 3.0, 4.0], allowed_token_ids=(0, 2), top_k=3) == [0, 2]


def test_min_p_is_applied_after_temperature():
    assert kept([4.0, 2.0, 0.0], min_p=0.1, temperature=2.0) == [0, 1, 2]
    assert kept([4.0, 2.0, 0.0], min_p=0.1) == [0, 1]


def test_bad_word_needs_the_whole_history():
    row = [0.0] * 8
    assert 6 in kept(row, generated=[5], bad_words=[(4, 5, 6)])
    assert 6 not in kept(row, generated=[4, 5], bad_words=[(4, 5, 6)])
    assert 6 in kept(row, generated=[5, 5], bad_words=[(4, 5, 6)])


def test_bad_word_of_one_token_is_cut_at_once():
    assert kept([0.0] * 4, bad_words=[(2,)]) == [0, 1, 3]


def test_bad_words_do_not_see_the_prompt():
    row = [0.0] * 12
    assert 11 in kept(row, prompt=[10], bad_words=[(10, 11)])
    assert 11 not in kept(row, generated=[10], bad_words=[(10, 11)])


def test_bad_word_with_and_without_a_leading_space():
    vocabulary = Vocabulary(toy_words(["in", "spect", " inspect"]), head_width=8)
    context = resolve(SamplingParams(bad_words=("inspect",)), vocabulary, ())
    assert set(context.bad_words) == {(1, 2), (3,)}


def test_min_tokens_is_cut_before_normalising():
    row, cut = process([2.0, 1.0, 0.0], stop_ids=[0], min_tokens=1)
    assert row.log_softmax(0)[1] == pytest.approx(-0.3133, abs=1e-4)
    assert cut == ["min_tokens", "", ""]


def test_min_tokens_holds_back_every_end_id_until_reached():
    row = [0.0] * 12
    for made in range(3):
        assert set(range(12)) - set(kept(row, generated=[5] * made, stop_ids=[2, 11], min_tokens=3)) == {2, 11}
    assert len(kept(row, generated=[5] * 3, stop_ids=[2, 11], min_tokens=3)) == 12


def test_logit_bias_of_100_leaves_one_token():
    assert torch.tensor(logprobs(torch.randn(20).tolist(), logit_bias={7: 100.0})).exp()[7] == pytest.approx(1.0)


def test_bias_does_not_bring_back_a_cut_token():
    row, cut = process([1.0, 0.0], allowed_token_ids=(1,), logit_bias={0: 100.0})
    assert row.tolist() == [-INF, 0.0]
    assert cut == ["allowed_token_ids", ""]


def test_a_token_is_cut_by_the_first_step_that_cuts_it():
    _, cut = process([5.0, 4.0, 3.0, 2.0, -9.0], stop_ids=[0], min_tokens=1, bad_words=[(1,)], min_p=0.01, top_k=1)
    assert cut == ["min_tokens", "bad_words", "", "top_k", "min_p"]


def test_neutral_parameters_run_no_step_and_change_nothing():
    row = torch.randn(30)
    assert active_processors(SamplingParams()) == ()
    assert torch.equal(process(row.tolist())[0], row)


def test_steps_are_listed_in_the_engines_order():
    everything = SamplingParams(
        allowed_token_ids=(1,), bad_words=("a",), min_tokens=1, logit_bias={1: 1.0}, repetition_penalty=1.1, frequency_penalty=0.1,
        presence_penalty=0.1, temperature=0.9, min_p=0.1, top_k=3, top_p=0.9,
    )  # fmt: skip
    assert active_processors(everything) == (
        "allowed_token_ids", "bad_words", "min_tokens", "logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty",
        "temperature", "min_p", "top_k", "top_p",
    )  # fmt: skip


# ---- rows with nothing left


def test_allowed_end_ids_against_min_tokens_names_the_row_and_the_steps():
    with pytest.raises(EmptyRowError, match=r"row: no token is left; min_tokens cut the last ones .*allowed_token_ids, min_tokens"):
        process([1.0, 2.0, 3.0], allowed_token_ids=(2,), stop_ids=[2], min_tokens=3)


def test_everything_suppressed_names_the_step_that_emptied_the_row():
    with pytest.raises(EmptyRowError, match="bad_words"):
        process([1.0, 2.0, 3.0, 4.0], bad_words=[(0,), (1,), (2,), (3,)], top_p=0.5, top_k=1)


# ---- ids against the model's head


def toy_words(words):
    """A toy tokenizer whose ids are 1, 2, … in the order of `words`; the fewest pieces win."""
    raw = Tokenizer(models.Unigram([("<unk>", -99.0), *((word, -1.0) for word in words)], 0))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=raw)


@pytest.mark.parametrize("name", ["logit_bias", "allowed_token_ids", "stop_token_ids"])
def test_ids_are_checked_against_the_width_of_the_head(name):
    vocabulary = Vocabulary(tiny_models.byte_level_tokenizer(), head_width=320)
    wrap = (lambda i: {i: 1.0}) if name == "logit_bias" else (lambda i: (i,))
    resolve(SamplingParams(**{name: wrap(319)}), vocabulary, ())
    with pytest.raises(InputError, match=rf"{name}.*\[0, 319\], got 320"):
        resolve(SamplingParams(**{name: wrap(320)}), vocabulary, ())
    with pytest.raises(InputError, match=name):
        resolve(SamplingParams(**{name: wrap(-1)}), vocabulary, ())


def test_top_k_beyond_the_vocabulary_is_noted():
    vocabulary = Vocabulary(tiny_models.byte_level_tokenizer(), head_width=320)
    assert "5000" in resolve(SamplingParams(top_k=5000), vocabulary, ()).notes[0]
    assert resolve(SamplingParams(top_k=319), vocabulary, ()).notes == ()


def test_stop_ids_are_held_back_with_the_end_ids():
    got = resolve(SamplingParams(stop_token_ids=(9,), ignore_eos=True), Vocabulary(tiny_models.byte_level_tokenizer(), 300), (2, 11))
    assert (got.stop_ids, got.end_ids) == ((2, 9, 11), (9,))


# ---- against the float64 definitions

V = 12
grid = st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 4.0])  # few values, so that ties are common
logit = st.one_of(grid, st.floats(-8, 8, width=32))
rows = st.lists(st.one_of(logit, logit, logit, st.just(-INF)), min_size=V, max_size=V).filter(lambda r: max(r) > -INF)
histories = st.lists(st.integers(0, V - 1), max_size=6)


@st.composite
def all_settings(draw):
    pick = lambda strategy, neutral: draw(st.one_of(st.just(neutral), strategy))  # noqa: E731
    return oracle.Settings(
        allowed=pick(st.lists(st.integers(0, V - 1), min_size=1, max_size=9).map(tuple), None),
        bad_words=pick(st.lists(st.lists(st.integers(0, V - 1), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple), ()),
        min_tokens=pick(st.integers(1, 4), 0),
        stop_ids=draw(st.sampled_from([(), (0,), (2, 11)])),
        bias=pick(st.dictionaries(st.integers(0, V - 1), st.sampled_from([-100.0, -1.0, 0.5, 3.0]), min_size=1, max_size=3), {}),
        repetition=pick(st.sampled_from([0.5, 1.3, 2.0]), 1.0),
        frequency=pick(st.sampled_from([-0.5, 0.25, 2.0]), 0.0),
        presence=pick(st.sampled_from([-0.5, 1.5]), 0.0),
        temperature=pick(st.sampled_from([0.0, 0.5, 0.7, 2.0]), 1.0),
        min_p=pick(st.sampled_from([0.01, 0.1, 0.6]), 0.0),
        top_k=pick(st.sampled_from([1, 2, 5, 12, 99]), 0),
        top_p=pick(st.sampled_from([1e-9, 0.31, 0.77, 0.953]), 1.0),
    )


def ours(settings):
    s = settings
    params = SamplingParams(
        allowed_token_ids=s.allowed, bad_words=("stand-in",) if s.bad_words else (), min_tokens=s.min_tokens, logit_bias=s.bias or {},
        repetition_penalty=s.repetition, frequency_penalty=s.frequency, presence_penalty=s.presence, temperature=s.temperature,
        min_p=s.min_p, top_k=s.top_k, top_p=s.top_p,
    )  # fmt: skip
    return resolved(params, s.stop_ids, s.bad_words)


def is_at_a_border(steps, raw, s):
    """Whether float32 and float64 may rightly disagree: a probability or a logit sits on the edge of a cut."""
    row = raw
    for name, after in steps:
        if not np.isfinite(row).any():
            return False
        probs = oracle.softmax(row)
        if name == "min_p" and np.abs(probs - s.min_p * probs.max()).min() < 1e-6:
            return True
        if name == "top_k" and s.top_k < V:
            kth = sorted(row, reverse=True)[s.top_k - 1]
            near = np.abs(row[np.isfinite(row)] - kth)
            if ((near > 0) & (near < 1e-5)).any():
                return True
        if name == "top_p":
            order = oracle.top(row, V)
            before = np.cumsum(probs[order]) - probs[order]
            if (
                np.abs(before - s.top_p).min() < 1e-6
                or (np.abs(np.diff(row[order][np.isfinite(row[order])])) < 1e-6).sum()
                > (np.diff(row[order][np.isfinite(row[order])]) == 0).sum()
            ):
                return True
        row = after
    return False


@settings(max_examples=400, deadline=None)
@given(row=rows, prompt=histories, generated=histories, s=all_settings())
def test_the_pipeline_equals_the_float64_definition(row, prompt, generated, s):
    raw = np.array(row, dtype=np.float32).astype(np.float64)
    steps = oracle.pipeline(raw, s, prompt, generated)
    if is_at_a_border(steps, raw, s):
        return
    context = batch_context(ours(s), torch.tensor(prompt, dtype=torch.long), [generated])
    given_rows = torch.tensor([row], dtype=torch.float32)
    before = given_rows.clone()
    if any(not np.isfinite(after).any() for _, after in steps):
        with pytest.raises(EmptyRowError):
            run_pipeline(given_rows, context, ["row"])
        return
    out = run_pipeline(given_rows, context, ["row"])
    assert torch.equal(given_rows, before)  # raw values are never written to
    expected = steps[-1][1] if steps else raw
    np.testing.assert_allclose(out.logits[0].double().numpy(), expected, rtol=1e-5, atol=1e-5)
    assert [out.names[c - 1] if c else "" for c in out.cut_by[0].tolist()] == [oracle.cut_by(raw, steps, i) for i in range(V)]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_rows_of_a_text_get_the_prefix_rule(data):
    """Prompt rows: the ids before are the whole prompt, nothing generated. Rows after the boundary: the true counts."""
    ids = data.draw(st.lists(st.integers(0, V - 1), min_size=2, max_size=9))
    boundary = data.draw(st.integers(0, len(ids)))
    first = data.draw(st.integers(1, len(ids) - 1))
    s = oracle.Settings(
        bad_words=((3,), (1, 2)), min_tokens=2, stop_ids=(0,), repetition=1.5, frequency=0.5, presence=-0.25, temperature=0.5
    )  # fmt: skip
    raw = np.array(data.draw(st.lists(st.lists(grid, min_size=V, max_size=V), min_size=len(ids) - first, max_size=len(ids) - first)))
    context = text_context(ours(s), torch.tensor(ids), boundary, first, len(ids))
    out = run_pipeline(torch.tensor(raw, dtype=torch.float32), context, [""] * len(raw)).logits
    for t in range(first, len(ids)):
        prompt, generated = (ids[:t], []) if t <= boundary else (ids[:boundary], ids[boundary:t])
        expected = oracle.pipeline(raw[t - first], s, prompt, generated)[-1][1]
        np.testing.assert_allclose(out[t - first].double().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("fields", [{"top_p": 1e-9}, {"top_k": 1}, {"min_p": 1.0}])
def test_the_narrowest_cut_leaves_exactly_the_best(dtype, fields):
    row = torch.tensor([3.0, 9.5, -1.0, 9.0], dtype=dtype).float()
    assert kept(row.tolist(), **fields) == [1]


# ---- against transformers' own


def hf(processor, ids, row):
    return processor(torch.tensor([ids]), torch.tensor([row]))[0].tolist()


@pytest.fixture(scope="module")
def row():
    return (torch.randn(200, generator=torch.Generator().manual_seed(3)) * 3).tolist()


@pytest.mark.parametrize(
    ("processor", "fields"),
    [
        (transformers.TemperatureLogitsWarper(0.7), {"temperature": 0.7}),
        (transformers.TemperatureLogitsWarper(1.9), {"temperature": 1.9}),
        (transformers.TopKLogitsWarper(17), {"top_k": 17}),
        (transformers.TopPLogitsWarper(0.9), {"top_p": 0.9}),
        (transformers.TopPLogitsWarper(0.2), {"top_p": 0.2}),
        (transformers.MinPLogitsWarper(0.05), {"min_p": 0.05}),
        (transformers.RepetitionPenaltyLogitsProcessor(1.4), {"repetition_penalty": 1.4}),
        (transformers.SequenceBiasLogitsProcessor([[[5], 2.5], [[9], -4.0]]), {"logit_bias": {5: 2.5, 9: -4.0}}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else str(value),
)
def test_same_as_transformers(processor, fields, row):
    prompt, generated = [3, 4, 4], [7, 3]
    assert values(row, prompt=prompt, generated=generated, **fields) == pytest.approx(hf(processor, prompt + generated, row), rel=1e-5)


@pytest.mark.parametrize("generated", [[], [8], [8, 9], [9, 9]])
def test_bad_words_same_as_transformers(row, generated):
    words = [[4], [8, 9, 10], [9, 11]]
    theirs = hf(transformers.NoBadWordsLogitsProcessor(words, eos_token_id=[0]), [50, *generated], row)
    assert values(row, prompt=[50], generated=generated, bad_words=[tuple(w) for w in words]) == pytest.approx(theirs)


@pytest.mark.parametrize("made", [0, 1, 2, 3])
def test_min_tokens_same_as_transformers(row, made):
    prompt, generated = [50, 51], [7] * made
    theirs = hf(transformers.MinNewTokensLengthLogitsProcessor(2, 2, [0, 11]), prompt + generated, row)
    assert values(row, prompt=prompt, generated=generated, stop_ids=[0, 11], min_tokens=2) == pytest.approx(theirs)


def test_allowed_ids_same_as_transformers_suppressing_the_others(row):
    allowed = (3, 8, 150)
    theirs = hf(transformers.SuppressTokensLogitsProcessor([i for i in range(200) if i not in allowed]), [1], row)
    assert values(row, allowed_token_ids=allowed) == pytest.approx(theirs)
