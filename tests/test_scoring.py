"""Scored rows of a tiny model against the float64 definitions, on every path that this machine has."""

import math

import numpy as np
import oracle
import pandas as pd
import pytest
import tiny_models
import torch

from inspector import InputError, Inspector, LogprobsMode, SamplingParams, forward, prompt_cache

INF = float("inf")
V = 300
PROMPT, COMPLETION = [40, 41, 42, 41, 40, 77, 5], [41, 42, 41, 42, 99]
IDS = PROMPT + COMPLETION

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


@pytest.fixture(scope="module")
def inspector(path, tiny_llama):
    return Inspector(tiny_llama.loaded, path)


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


@pytest.mark.parametrize(
    "make", [tiny_models.llama, tiny_models.gpt2, lambda: tiny_models.gemma2(vocab_size=300)], ids=["llama", "gpt2", "sliding_window"]
)
def test_what_is_kept_of_earlier_prompts_changes_no_score(make, path, monkeypatch):
    monkeypatch.setattr(prompt_cache, "SHORTEST_PREFIX", 1)
    loaded = tiny_models.inspector(make(), tiny_models.byte_level_tokenizer()).loaded
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
    small = tiny_models.inspector(tiny_models.llama(vocab_size=20), tiny_models.byte_level_tokenizer())
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
