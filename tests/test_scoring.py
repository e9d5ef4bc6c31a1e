"""Scored rows of a tiny model against the float64 definitions, on every path that this machine has."""

import math

import numpy as np
import oracle
import pandas as pd
import pytest
import tiny
import torch

import kernels
from inspector import EmptyRowError, InputError, Inspector, LogprobsMode, SamplingParams, forward, prompt_cache
from inspector.processors import PROCESSOR_NAMES

INF = float("inf")
V = 300
PROMPT, COMPLETION = [40, 41, 42, 41, 40, 77, 5], [41, 42, 41, 42, 99]
IDS = PROMPT + COMPLETION
PATHS = [path for path in kernels.PATHS if path in ("torch", "numba")]

CASES = {
    "neutral": {},
    "cool": {"temperature": 0.6},
    "top_k": {"top_k": 7},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.05, "temperature": 1.3},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.7, "frequency_penalty": -0.3},
    "bias": {"logit_bias": {41: 3.5, 42: -100.0}},
    "allowed": {"allowed_token_ids": tuple(sorted({*range(0, 60), 77, 99}))},
    "min_tokens": {"min_tokens": 3},
    "greedy": {"temperature": 0.0, "top_k": 1, "repetition_penalty": 1.2},
    "everything": {
        "temperature": 0.7, "top_k": 40, "top_p": 0.92, "min_p": 0.02, "repetition_penalty": 1.15, "presence_penalty": 0.3,
        "frequency_penalty": 0.2, "logit_bias": {198: 1.5}, "min_tokens": 3, "allowed_token_ids": tuple(range(0, 280)),
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=PATHS)
def inspector(request, tiny_llama):
    return Inspector(tiny_llama.loaded, request.param)


@pytest.fixture(params=PATHS)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def logits(tiny_llama):
    """[T, V] float64, one plain forward pass in float32; row t predicts token t + 1."""
    with torch.inference_mode():
        return tiny_llama.loaded.model(torch.tensor([IDS])).logits[0].double().numpy()


def settings(fields):
    renamed = {"allowed_token_ids": "allowed", "logit_bias": "bias", "repetition_penalty": "repetition",
               "presence_penalty": "presence", "frequency_penalty": "frequency"}  # fmt: skip
    return oracle.Settings(stop_ids=(0,), **{renamed.get(name, name): value for name, value in fields.items()})


def processed_row(logits, t, fields):
    """(steps, row) of token t: the prefix rule for the prompt, true counts after the boundary."""
    boundary = len(PROMPT)
    prompt, generated = (IDS[:t], []) if t < boundary else (IDS[:boundary], IDS[boundary:t])
    steps = oracle.pipeline(logits[t - 1], settings(fields), prompt, generated)
    return steps, steps[-1][1] if steps else logits[t - 1]


def close(value, expected, tolerance=1e-4):
    return value == expected or math.isclose(value, expected, rel_tol=1e-5, abs_tol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_every_column_equals_its_definition(name, inspector, logits):
    fields = CASES[name]
    tokens = inspector.inspect(PROMPT, completion=COMPLETION, params=SamplingParams(**fields)).tokens
    for t in range(1, len(IDS)):
        raw, row, own = logits[t - 1], tokens.iloc[t], IDS[t]
        steps, processed = processed_row(logits, t, fields)
        is_cut = processed[own] == -INF
        count, mass = oracle.kept(raw, processed)
        assert close(row["raw_logit"], raw[own])
        assert close(row["raw_logprob"], oracle.log_softmax(raw)[own])
        assert close(row["processed_logit"], processed[own])
        assert close(row["processed_logprob"], -INF if is_cut else oracle.log_softmax(processed)[own])
        assert row["raw_rank"] == oracle.rank(raw, own)
        assert pd.isna(row["processed_rank"]) if is_cut else row["processed_rank"] == oracle.rank(processed, own)
        assert close(row["raw_entropy"], oracle.entropy(raw))
        assert close(row["processed_entropy"], oracle.entropy(processed))
        assert row["kept_tokens"] == count
        assert close(row["kept_mass"], mass)
        assert row["cut_by"] == oracle.cut_by(raw, steps, own)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", LogprobsMode)
def test_alternatives_are_the_best_of_the_mode(name, mode, inspector, logits):
    """The n best by the mode's value, ties by lower id; cut tokens after the survivors, best raw value first."""
    fields, n = CASES[name], 12
    report = inspector.inspect(PROMPT, completion=COMPLETION, params=SamplingParams(**fields), top_n=n, mode=mode)
    for t in range(1, len(IDS)):
        raw, (_, processed) = logits[t - 1], processed_row(logits, t, fields)
        here = report.alternatives[report.alternatives["position"] == t]
        top = here[here["listed_as"].str.contains("top")]["token_id"].tolist()
        value = processed if mode.is_processed else raw
        alive = [i for i in oracle.top(value, n) if value[i] > -INF]
        assert top[: len(alive)] == alive
        assert all(value[i] == -INF for i in top[len(alive) :])
        assert here["place"].tolist() == list(range(1, len(here) + 1))
        for _, row in here.iterrows():
            i = row["token_id"]
            assert close(row["raw_logit"], raw[i]) and close(row["processed_logit"], processed[i])
            assert row["raw_rank"] == oracle.rank(raw, i)
            assert pd.isna(row["processed_rank"]) if processed[i] == -INF else row["processed_rank"] == oracle.rank(processed, i)


# ---- the first row


def test_the_first_token_has_a_row_without_scores(inspector):
    row = inspector.inspect(PROMPT).tokens.iloc[0]
    assert (row["token_id"], row["position"], row["source"]) == (PROMPT[0], 0, "prompt")
    floats = ["score", "raw_logit", "raw_logprob", "processed_logit", "processed_logprob", "raw_entropy", "processed_entropy", "kept_mass"]
    assert row[[*floats, "raw_rank", "processed_rank", "kept_tokens"]].isna().all()
    assert row["cut_by"] == ""


def test_the_first_token_has_no_alternatives(inspector):
    assert inspector.inspect(PROMPT).alternatives["position"].min() == 1


def test_every_token_has_one_row(inspector):
    tokens = inspector.inspect(PROMPT, completion=COMPLETION).tokens
    assert tokens["token_id"].tolist() == IDS
    assert tokens["position"].tolist() == list(range(len(IDS)))
    assert tokens["source"].tolist() == ["prompt"] * len(PROMPT) + ["completion"] * len(COMPLETION)


def test_a_single_token_is_a_report_without_scores(inspector):
    report = inspector.inspect([5])
    assert len(report.tokens) == 1 and report.alternatives.empty
    assert report.summary["scored"].tolist() == [0]


def test_the_completion_is_scored_by_the_rows_before_it(inspector, logits):
    """Prompt 7, completion 5: rows 6…10 of the logits score the completion."""
    got = inspector.inspect(PROMPT, completion=COMPLETION).tokens.query("source == 'completion'")["raw_logit"].tolist()
    assert got == pytest.approx([logits[6 + i, token] for i, token in enumerate(COMPLETION)], abs=1e-4)


# ---- what must not change a score


@pytest.mark.parametrize("block", [1, 4, 5])
@pytest.mark.parametrize("bytes_at_a_time", [1, 4 * V * 3])
def test_blocks_and_chunks_change_nothing(block, bytes_at_a_time, inspector, monkeypatch):
    params = SamplingParams(**CASES["everything"])
    whole = inspector.inspect(PROMPT, completion=COMPLETION, params=params, token_ids=[3])
    monkeypatch.setattr(forward, "BLOCK_TOKENS", block)
    monkeypatch.setattr(forward, "CHUNK_BYTES", bytes_at_a_time)
    pieces = inspector.inspect(PROMPT, completion=COMPLETION, params=params, token_ids=[3])
    pd.testing.assert_frame_equal(pieces.tokens, whole.tokens, atol=1e-4, rtol=0)
    pd.testing.assert_frame_equal(pieces.alternatives, whole.alternatives, atol=1e-4, rtol=0)


def test_no_more_than_a_chunk_of_logits_is_ever_made(inspector, monkeypatch):
    """The head sees a bounded number of rows at a time, however long the text."""
    head, sizes = inspector.loaded.head, []
    whole = type(head).__call__
    monkeypatch.setattr(type(head), "__call__", lambda self, hidden: sizes.append(len(hidden)) or whole(self, hidden))
    monkeypatch.setattr(forward, "CHUNK_BYTES", 4 * V * 60)
    Inspector(inspector.loaded, inspector.kernel_path).inspect([40 + i % 50 for i in range(400)])
    assert sum(sizes) == 399
    assert max(sizes) <= 60


def test_where_the_boundary_lies_does_not_change_raw_scores(inspector):
    whole = inspector.inspect(IDS).tokens["raw_logprob"][1:].tolist()
    for boundary in (1, 2, 7, 11):
        split = inspector.inspect(IDS[:boundary], completion=IDS[boundary:]).tokens
        assert split["raw_logprob"][1:].tolist() == pytest.approx(whole, abs=1e-4)


def test_raw_columns_do_not_move_with_sampling_parameters(inspector):
    raw = ["token_id", "raw_logit", "raw_logprob", "raw_rank", "raw_entropy"]
    neutral = inspector.inspect(PROMPT, completion=COMPLETION).tokens[raw]
    for fields in CASES.values():
        pd.testing.assert_frame_equal(
            inspector.inspect(PROMPT, completion=COMPLETION, params=SamplingParams(**fields)).tokens[raw], neutral
        )


def test_the_same_request_twice_is_bit_equal(inspector):
    first, second = (inspector.inspect(PROMPT, completion=COMPLETION, params=SamplingParams(top_p=0.9)) for _ in range(2))
    assert first.tokens.equals(second.tokens) and first.alternatives.equals(second.alternatives)


SHARED = [40 + i % 20 for i in range(16)]
SHARING = [[*SHARED, *tail] for tail in ([60, 61, 62], [60, 61, 62, 63], [70, 71], [60, 61, 70])]


@pytest.mark.parametrize("name", ["tiny_llama", pytest.param("embedded", marks=pytest.mark.real)])
def test_the_order_of_requests_does_not_matter(name, request):
    """Prompts that share their beginning: the same bits in whatever order they were asked for."""
    loaded = request.getfixturevalue(name).loaded
    forwards, backwards = Inspector(loaded), Inspector(loaded)
    first = [forwards.inspect(ids).tokens for ids in SHARING]
    second = [backwards.inspect(ids).tokens for ids in reversed(SHARING)][::-1]
    for a, b in zip(first, second):
        pd.testing.assert_frame_equal(a, b, check_exact=True)


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2, lambda: tiny.gemma2(vocab_size=300)], ids=["llama", "gpt2", "sliding_window"])
def test_what_is_kept_of_earlier_prompts_changes_no_score(make, path, monkeypatch):
    monkeypatch.setattr(prompt_cache, "SHORTEST_PREFIX", 1)
    loaded = tiny.inspector(make(), tiny.byte_level_tokenizer()).loaded
    keeps = Inspector(loaded, path)
    params = SamplingParams(top_k=20, repetition_penalty=1.3, presence_penalty=0.5, ignore_eos=True)
    reused = 0
    asked = [(ids, boundary) for ids in [*SHARING, SHARING[0], SHARED, SHARED[:3], SHARING[3]] for boundary in (len(ids), 2, 10)]
    for ids, boundary in asked:
        options = {"completion": ids[boundary:], "params": params, "continuations": 1, "max_new_tokens": 3, "seed": 1}
        fresh = Inspector(loaded, path, cache_bytes=0).inspect(ids[:boundary], **options)
        again = keeps.inspect(ids[:boundary], **options)
        reused += again.run["reused"]["model_tokens"]
        pd.testing.assert_frame_equal(again.tokens, fresh.tokens, atol=1e-4, rtol=0)
        pd.testing.assert_frame_equal(again.alternatives, fresh.alternatives, atol=1e-4, rtol=0)
    assert reused > 0


def test_what_is_kept_does_not_mix_parameters(tiny_llama, path):
    keeps = Inspector(tiny_llama.loaded, path)
    for fields in (*CASES.values(), *CASES.values()):
        for off in ("as_sampled", "off"):
            options = {"completion": COMPLETION, "params": SamplingParams(**fields), "prompt_processing": off}
            fresh = Inspector(tiny_llama.loaded, path, cache_bytes=0).inspect(PROMPT, **options)
            pd.testing.assert_frame_equal(keeps.inspect(PROMPT, **options).tokens, fresh.tokens, atol=1e-4, rtol=0)


def test_the_mode_selects_what_is_shown_not_what_is_run(inspector):
    options = {"completion": COMPLETION, "params": SamplingParams(**CASES["everything"])}
    reports = {mode: inspector.inspect(PROMPT, mode=mode, **options) for mode in LogprobsMode}
    plain = reports[LogprobsMode.RAW_LOGPROBS]
    for mode, report in reports.items():
        assert report.tokens["score"].equals(report.tokens[mode.value[:-1]].rename("score"))
        assert report.tokens.drop(columns="score").equals(plain.tokens.drop(columns="score"))
        assert report.tokens.equals(plain.with_mode(mode).tokens)
        assert report.alternatives.equals(plain.with_mode(mode.value).alternatives)


# ---- invariants of the modes


@pytest.mark.parametrize("name", CASES)
def test_logprobs_are_never_positive(name, inspector):
    report = inspector.inspect(PROMPT, completion=COMPLETION, params=SamplingParams(**CASES[name]), top_n=50)
    for table in (report.tokens, report.alternatives):
        assert table["raw_logprob"].max() <= 0
        assert table["processed_logprob"].max() <= 0


@pytest.mark.parametrize("name", CASES)
def test_the_survivors_probabilities_sum_to_one(name, inspector):
    every = inspector.inspect(PROMPT, completion=COMPLETION, params=SamplingParams(**CASES[name]), token_ids=range(V)).alternatives
    for column in ("raw_logprob", "processed_logprob"):
        sums = np.exp(every[column].astype("float64")).groupby(every["position"]).sum()
        assert sums.tolist() == pytest.approx([1.0] * (len(IDS) - 1), abs=1e-4)


def test_raw_modes_hold_no_cut_token(inspector):
    report = inspector.inspect(PROMPT, params=SamplingParams(top_k=50), token_ids=range(V), top_n=0)
    assert np.isfinite(report.alternatives["raw_logprob"]).all()
    cut = report.alternatives.groupby("position")["processed_logit"].apply(lambda c: int((c == -INF).sum()))
    assert cut.tolist() == [V - 50] * (len(PROMPT) - 1)


def test_neutral_parameters_give_processed_equal_to_raw(inspector):
    tokens = inspector.inspect(PROMPT, completion=COMPLETION).tokens
    assert tokens["processed_logprob"].equals(tokens["raw_logprob"].rename("processed_logprob"))
    assert tokens["kept_tokens"][1:].tolist() == [V] * (len(IDS) - 1)


# ---- which alternatives are listed


def test_top_n_zero_lists_each_own_token(inspector):
    table = inspector.inspect(PROMPT, top_n=0).alternatives
    assert table["token_id"].tolist() == PROMPT[1:]
    assert set(table["listed_as"]) == {"own"}
    assert set(table["place"]) == {1}


def test_the_own_token_is_listed_once_with_its_rank(inspector, logits):
    table = inspector.inspect(PROMPT, top_n=3).alternatives
    for t in range(1, len(PROMPT)):
        here = table[table["position"] == t]
        own = here[here["token_id"] == PROMPT[t]]
        rank = oracle.rank(logits[t - 1], PROMPT[t])
        assert own["raw_rank"].tolist() == [rank]
        assert own["listed_as"].tolist() == ["top+own" if rank <= 3 else "own"]
        assert len(here) == (3 if rank <= 3 else 4)


def test_requested_ids_are_listed_whatever_their_rank(inspector, logits):
    table = inspector.inspect(PROMPT, top_n=2, token_ids=[250]).alternatives
    here = table[table["token_id"] == 250]
    assert here["position"].tolist() == list(range(1, len(PROMPT)))
    assert here["listed_as"].str.contains("requested").all()
    assert here["raw_logit"].tolist() == pytest.approx([logits[t - 1, 250] for t in range(1, len(PROMPT))], abs=1e-4)


def test_a_requested_id_twice_is_one_row(inspector):
    report = inspector.inspect(PROMPT, top_n=0, token_ids=[7, 7])
    assert (report.alternatives["token_id"] == 7).groupby(report.alternatives["position"]).sum().tolist() == [1] * (len(PROMPT) - 1)
    assert report.run["token_ids"] == [7]


def test_no_requested_ids_is_plain_top_n(inspector):
    plain = inspector.inspect(PROMPT, top_n=4).alternatives
    assert plain.equals(inspector.inspect(PROMPT, top_n=4, token_ids=[]).alternatives)


def test_a_token_can_be_top_own_and_requested(inspector, logits):
    best = oracle.top(logits[len(PROMPT) - 1], 1)[0]
    table = inspector.inspect(PROMPT, completion=[best], top_n=1, token_ids=[best]).alternatives
    assert table[table["position"] == len(PROMPT)]["listed_as"].tolist() == ["top+own+requested"]


def test_requested_ids_follow_the_mode(inspector, logits):
    report = inspector.inspect(PROMPT, token_ids=[250], top_n=0, params=SamplingParams(temperature=0.5, top_k=2))
    row = report.alternatives.query("token_id == 250 and position == 3").iloc[0]
    assert row["raw_logit"] == pytest.approx(logits[2, 250], abs=1e-4)
    assert row["raw_logprob"] == pytest.approx(oracle.log_softmax(logits[2])[250], abs=1e-4)
    assert row["processed_logprob"] == -INF
    assert row["cut_by"] == "top_k"


def test_a_value_for_an_id_does_not_depend_on_top_n(inspector):
    two, ten = (inspector.inspect(PROMPT, top_n=n, token_ids=[41]).alternatives.query("token_id == 41") for n in (2, 10))
    assert two["raw_logprob"].tolist() == ten["raw_logprob"].tolist()


def test_fewer_survivors_than_top_n_leaves_the_cut_ones_marked(inspector):
    """top_k 1, top 5, processed mode: one live row; the others are marked by what cut them and claim no rank."""
    table = inspector.inspect(PROMPT, mode="processed_logprobs", top_n=5, params=SamplingParams(top_k=1)).alternatives
    for _, here in table[table["listed_as"].str.contains("top")].groupby("position"):
        assert here["cut_by"].tolist()[0] == ""
        assert set(here["cut_by"].tolist()[1:]) <= {"top_k"}
        assert here["processed_rank"].tolist()[0] == 1
        assert here["processed_rank"].isna().tolist()[1:] == [True] * (len(here) - 1)


def test_top_n_larger_than_the_vocabulary_lists_all(tiny_llama):
    small = tiny.inspector(tiny.llama(vocab_size=20), tiny.byte_level_tokenizer())
    table = small.inspect([1, 2], top_n=100).alternatives
    assert sorted(table["token_id"]) == list(range(20))


@pytest.mark.parametrize(("options", "message"), [
    ({"top_n": 101}, r"top_n must be a whole number in \[0, 100\], got 101"),
    ({"top_n": -1}, "top_n"),
    ({"top_n": True}, "top_n"),
    ({"top_n": 2.5}, "top_n"),
    ({"token_ids": [300]}, r"token_ids must be token ids in \[0, 299\], got 300 at place 1"),
    ({"token_ids": [-1]}, "token_ids"),
    ({"token_ids": ["5"]}, "token_ids"),
    ({"mode": "raw_logrobs"}, "raw_logits, raw_logprobs, processed_logits, processed_logprobs, got 'raw_logrobs'"),
    ({"prompt_processing": "on"}, "prompt_processing must be one of as_sampled, off"),
    ({"max_new_tokens": 0}, "max_new_tokens"),
    ({"continuations": 65}, "continuations"),
])  # fmt: skip
def test_a_wrong_option_is_named_with_its_range(options, message, inspector):
    with pytest.raises(InputError, match=message):
        inspector.inspect(PROMPT, **options)


# ---- ties


@pytest.fixture(scope="module", params=PATHS)
def tied(request):
    """Every token has the same embedding up to a sign, so rows hold two values only."""
    model = tiny.llama(vocab_size=40)
    with torch.no_grad():
        model.model.embed_tokens.weight[1:] = model.model.embed_tokens.weight[0]
        model.model.embed_tokens.weight[20:] *= -1
    return Inspector(tiny.inspector(model, tiny.byte_level_tokenizer()).loaded, request.param)


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


class Rigged(type(tiny.llama())):
    """A model whose logits are given: row t of `table` whatever the text."""

    table = None

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = self.table[: out.logits.shape[1]].expand(out.logits.shape[0], -1, -1).to(out.logits)
        return out


def rigged(rows, path="torch"):
    """An Inspector of a model that always predicts `rows` [T, V]; one block a text."""
    model = tiny.llama(vocab_size=len(rows[0]))
    table = torch.tensor([*rows, *[rows[-1]] * 3], dtype=torch.float32)
    model.__class__ = type("RiggedModel", (Rigged,), {"table": table})
    return Inspector(tiny.inspector(model, tiny.byte_level_tokenizer()).loaded, path)


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
    inspector = tiny.inspector(tiny.llama(), tiny.byte_level_tokenizer())
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
    inspector = tiny.inspector(tiny.llama(), tiny.byte_level_tokenizer())
    with pytest.raises(EmptyRowError, match=r"token 1: no token is left; min_tokens cut the last ones .*allowed_token_ids, min_tokens"):
        Inspector(inspector.loaded, path).inspect(PROMPT, params=SamplingParams(allowed_token_ids=(0,), min_tokens=3))


def test_a_wrong_number_of_logit_rows_is_an_error():
    inspector = tiny.inspector(tiny.llama(), tiny.byte_level_tokenizer())
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
