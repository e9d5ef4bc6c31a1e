"""Rows made by hand: ties, −inf, NaN, a toy row in all modes. The expected values are written down."""

import math

import pytest
import tiny_models
import torch

from inspector import EmptyRowError, Inspector, SamplingParams
from inspector.processors import PROCESSOR_NAMES

INF = float("inf")
PROMPT, COMPLETION = [40, 41, 42, 41, 40, 77, 5], [41, 42, 41, 42, 99]

# ---- ties


@pytest.fixture(scope="module")
def tied(path):
    """Every token has the same embedding up to a sign, so rows hold two values only."""
    model = tiny_models.llama(vocab_size=40)
    with torch.no_grad():
        model.model.embed_tokens.weight[1:] = model.model.embed_tokens.weight[0]
        model.model.embed_tokens.weight[20:] *= -1
    return Inspector(tiny_models.inspector(model, tiny_models.byte_level_tokenizer()).loaded, path)


def test_ties_share_the_best_rank(tied):
    report = tied.inspect([3, 25, 5, 30], token_ids=range(40), top_n=0)
    assert set(report.alternatives["raw_rank"]) == {1, 21}


def test_ties_are_listed_by_lower_id(tied):
    table = tied.inspect([3, 25, 5, 30], top_n=4).alternatives
    for _, here in table[table["listed_as"].str.contains("top")].groupby("position"):
        assert here["token_id"].tolist() in ([0, 1, 2, 3], [20, 21, 22, 23])


def test_top_k_keeps_what_ties_with_the_kth(tied):
    tokens = tied.inspect([3, 25, 5, 30], params=SamplingParams(top_k=2)).tokens
    assert tokens["kept_tokens"][1:].tolist() == [20, 20, 20]


def test_the_draw_among_ties_is_the_lowest_id_when_greedy(tied):
    drawn = tied.inspect([3], continuations=1, max_new_tokens=4, params=SamplingParams(temperature=0.0)).tokens.query("sequence == 1")
    assert set(drawn["token_id"]) <= {0, 20}


# ---- −inf, NaN


class Rigged(type(tiny_models.llama())):
    """A model whose logits are given: row t of `table` whatever the text."""

    table = None

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = self.table[: out.logits.shape[1]].expand(out.logits.shape[0], -1, -1).to(out.logits)
        return out


def rigged(rows, path="torch"):
    """An Inspector of a model that always predicts `rows` [T, V]; one block a text."""
    model = tiny_models.llama(vocab_size=len(rows[0]))
    table = torch.tensor([*rows, *[rows[-1]] * 3], dtype=torch.float32)
    model.__class__ = type("RiggedModel", (Rigged,), {"table": table})
    return Inspector(tiny_models.inspector(model, tiny_models.byte_level_tokenizer()).loaded, path)


def test_none_and_zero_are_different(path):
    """Values [missing, 0.0, −2.0]: total −2 over two scored tokens, mean −1, perplexity e; the 0.0 is probability 1."""
    rows = [[0.0, -INF, -INF], [math.log(math.exp(2) - 1), -INF, 0.0]]
    report = rigged(rows, path).inspect([1, 0, 2])
    assert report.tokens["score"].isna().tolist() == [True, False, False]
    assert report.tokens["score"].tolist()[1:] == pytest.approx([0.0, -2.0], abs=1e-6)
    summary = report.summary.iloc[0]
    assert (summary["tokens"], summary["scored"]) == (3, 2)
    assert summary[["total_logprob", "mean_logprob", "perplexity"]].tolist() == pytest.approx([-2.0, -1.0, math.e], rel=1e-5)


def test_a_large_finite_loss_and_a_cut_are_told_apart(path):
    report = rigged([[0.0, -120.0, -INF, -1.0]] * 2, path).inspect([0, 1, 2])
    assert report.tokens["raw_logprob"][1] == pytest.approx(-120.3133, abs=1e-3)
    assert report.tokens["raw_logprob"][2] == -INF


@pytest.mark.parametrize(("row", "entropy"), [([0.0, -INF, -INF], 0.0), ([0.0, 0.0, -INF], math.log(2))])
def test_entropy_counts_impossible_tokens_as_nothing(row, entropy, path):
    report = rigged([row], path).inspect([0, 0])
    assert report.tokens["raw_entropy"][1] == pytest.approx(entropy, abs=1e-6)


def test_entropy_of_the_survivors(path):
    report = rigged([[2.0, 2.0, 1.0, 0.0]], path).inspect([0, 0], params=SamplingParams(top_k=2))
    assert report.tokens["processed_entropy"][1] == pytest.approx(math.log(2), abs=1e-6)


def test_the_toy_row_in_all_modes(path):
    """logits [2, 1, 0], temperature 0.5, top_k 2."""
    report = rigged([[2.0, 1.0, 0.0]], path).inspect([0, 0], params=SamplingParams(temperature=0.5, top_k=2), token_ids=[0, 1, 2], top_n=0)
    table = report.alternatives.set_index("token_id")
    assert table.loc[[0, 1, 2], "raw_logit"].tolist() == [2.0, 1.0, 0.0]
    assert table.loc[[0, 1, 2], "processed_logit"].tolist() == [4.0, 2.0, -INF]
    assert table.loc[2, "raw_logprob"] == pytest.approx(-2.4076, abs=1e-4)
    assert table.loc[2, "cut_by"] == "top_k"


def test_kept_mass_is_the_raw_probability_of_the_survivors(path):
    report = rigged([[2.0, 1.0, 0.0]], path).inspect([0, 0], params=SamplingParams(top_k=2))
    row = report.tokens.iloc[1]
    assert row["kept_mass"] == pytest.approx(0.9100, abs=1e-4)
    assert row["processed_logprob"] - row["raw_logprob"] == pytest.approx(0.0943, abs=1e-4)


@pytest.mark.parametrize(("off", "expected"), [("as_sampled", -0.1429), ("off", -0.4076)])
def test_a_prompt_is_processed_unless_told_otherwise(off, expected, path):
    report = rigged([[2.0, 1.0, 0.0]], path).inspect(
        [0, 0], params=SamplingParams(temperature=0.5), mode="processed_logprobs", prompt_processing=off
    )
    assert report.tokens["score"][1] == pytest.approx(expected, abs=1e-4)
    assert any("not processed" in note for note in report.notes) == (off == "off")


def test_prompt_processing_off_still_processes_the_completion(path):
    options = {"completion": COMPLETION, "params": SamplingParams(top_k=5, repetition_penalty=1.5)}
    inspector = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer())
    on, off = (Inspector(inspector.loaded, path).inspect(PROMPT, prompt_processing=p, **options).tokens for p in ("as_sampled", "off"))
    boundary = len(PROMPT)
    assert off["processed_logit"][1:boundary].tolist() == off["raw_logit"][1:boundary].tolist()
    assert off[boundary:].equals(on[boundary:])


@pytest.mark.parametrize("bad", [math.nan, INF])
def test_a_row_with_nan_is_refused_by_name(bad, path):
    with pytest.raises(EmptyRowError, match="token 2: the logits hold NaN or"):
        rigged([[1.0, 0.0, 2.0], [1.0, bad, 0.0], [1.0, 0.0, 2.0]], path).inspect([0, 1, 2, 1])


def test_a_row_without_any_finite_logit_is_refused_by_name(path):
    with pytest.raises(EmptyRowError, match="token 2: no valid token"):
        rigged([[1.0, 0.0, 2.0], [-INF] * 3, [1.0, 0.0, 2.0]], path).inspect([0, 1, 2, 1])


def test_a_row_that_the_sampler_empties_is_refused_by_name(path):
    inspector = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer())
    with pytest.raises(EmptyRowError, match=r"token 1: no token is left; min_tokens cut the last ones .*allowed_token_ids, min_tokens"):
        Inspector(inspector.loaded, path).inspect(PROMPT, params=SamplingParams(allowed_token_ids=(0,), min_tokens=3))


def test_a_wrong_number_of_logit_rows_is_an_error():
    inspector = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer())
    whole = inspector.loaded.head._forward.forward
    inspector.loaded.head._forward.forward = lambda *a, **k: type("Out", (), {"logits": whole(*a, **k).logits[:, 1:]})()
    with pytest.raises(RuntimeError, match=r"rows of logits for"):
        inspector.inspect(PROMPT)


def test_forced_token_keeps_its_true_raw_score(path):
    """Allowed ids force a token: processed says probability 1, raw its own logprob and rank."""
    rows = [[0.0, 40.0, 42.0, -2.0]]
    row = rigged(rows, path).inspect([3, 3], params=SamplingParams(allowed_token_ids=(3,))).tokens.iloc[1]
    assert row["raw_logprob"] == pytest.approx(-44.1269, abs=1e-3)
    assert (row["raw_rank"], row["processed_rank"]) == (4, 1)
    assert row["processed_logprob"] == 0.0


def test_a_large_common_offset_loses_no_digits(path):
    base = [2.0, 1.0, 0.0]
    shifted = rigged([[v + 4096.0 for v in base]], path).inspect([0, 0]).tokens["raw_logprob"][1]
    assert shifted == pytest.approx(-0.4076, abs=1e-4)


def test_cut_names_are_those_of_the_pipeline():
    assert PROCESSOR_NAMES[0] == "allowed_token_ids" and PROCESSOR_NAMES[-1] == "top_p" and len(PROCESSOR_NAMES) == 11
