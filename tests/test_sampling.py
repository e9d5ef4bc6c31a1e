"""Continuations: what is drawn, what is recorded, and when it ends."""

import gc
import itertools
import math

import numpy as np
import oracle
import pandas as pd
import pytest
import tiny_models
import torch
from transformers import DynamicCache

from inspector import Cancelled, InputError, Inspector, LogprobsMode, SamplingParams
from inspector.events import Progress, SampledTokens

PROMPT = "the cat sat on the mat"
EVERYTHING = {
    "temperature": 0.8, "top_k": 60, "top_p": 0.95, "min_p": 0.001, "repetition_penalty": 1.2, "presence_penalty": 0.5,
    "frequency_penalty": 0.3, "logit_bias": {65: 1.0}, "min_tokens": 4, "bad_words": ("cat",), "ignore_eos": True,
}  # fmt: skip


def drawn(report, number=1):
    return report.tokens[report.tokens["sequence"] == number]


def ids_of(report, number=1):
    return drawn(report, number)["token_id"].tolist()


def record_of(report, number=1):
    return report.run["continuations"][number - 1]


# ---- recorded while sampling = scored afterwards


@pytest.mark.parametrize(
    "fields", [{"ignore_eos": True}, EVERYTHING, {"temperature": 0.0, "ignore_eos": True}], ids=["plain", "all", "greedy"]
)
def test_rows_equal_scoring_the_same_ids_as_a_completion(fields, tiny_llama):
    """Over more than 128 tokens, in every column."""
    params = SamplingParams(**fields)
    report = tiny_llama.inspect(PROMPT, params=params, continuations=2, max_new_tokens=150, seed=5)
    for number in (1, 2):
        ids = ids_of(report, number)
        assert len(ids) == 150
        again = tiny_llama.inspect(PROMPT, completion=ids, params=params)
        ours, theirs = (t.drop(columns=["sequence", "source", "start", "end"]).reset_index(drop=True) for t in (
            drawn(report, number), again.tokens.query("source == 'completion'"),
        ))  # fmt: skip
        pd.testing.assert_frame_equal(ours, theirs, atol=1e-4, rtol=0)


def test_alternatives_equal_scoring_the_same_ids_as_a_completion(tiny_llama):
    params = SamplingParams(**EVERYTHING)
    report = tiny_llama.inspect(PROMPT, params=params, continuations=1, max_new_tokens=20, seed=5, token_ids=[7], top_n=4)
    again = tiny_llama.inspect(PROMPT, completion=ids_of(report), params=params, token_ids=[7], top_n=4)
    ours = report.alternatives.query("sequence == 1").drop(columns="sequence").reset_index(drop=True)
    theirs = (
        again.alternatives[again.alternatives["position"] >= len(report.run["prompt_ids"])].drop(columns="sequence").reset_index(drop=True)
    )
    pd.testing.assert_frame_equal(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.real
def test_rows_equal_a_plain_forward_pass_on_the_embedded_model(embedded):
    report = embedded.inspect("Once upon a time", continuations=1, max_new_tokens=130, seed=2, params=SamplingParams(ignore_eos=True))
    ids = torch.tensor([report.run["prompt_ids"] + ids_of(report)])
    with torch.inference_mode():
        logprobs = embedded.loaded.model(ids).logits[0].double().log_softmax(1)
    first = len(report.run["prompt_ids"])
    expected = logprobs[first - 1 : -1].gather(1, ids[0, first:, None])[:, 0]
    assert drawn(report)["raw_logprob"].tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    assert len(set(drawn(report)["raw_logprob"])) > 20  # at temperature 1 the scores are not all equal


def test_positions_go_on_from_the_prompt(tiny_llama):
    report = tiny_llama.inspect(PROMPT, continuations=2, max_new_tokens=3, seed=1, params=SamplingParams(ignore_eos=True))
    first = len(report.run["prompt_ids"])
    for number in (1, 2):
        assert drawn(report, number)["position"].tolist() == [first, first + 1, first + 2]
    assert set(report.tokens.query("sequence > 0")["source"]) == {"continuation"}


def test_continuations_start_after_the_prompt_beside_a_completion(tiny_llama):
    params = SamplingParams(ignore_eos=True, presence_penalty=1.0)
    alone = tiny_llama.inspect(PROMPT, continuations=2, max_new_tokens=8, seed=4, params=params)
    beside = tiny_llama.inspect(PROMPT, completion=" and the red fox", continuations=2, max_new_tokens=8, seed=4, params=params)
    for number in (1, 2):
        pd.testing.assert_frame_equal(drawn(alone, number).reset_index(drop=True), drawn(beside, number).reset_index(drop=True), atol=1e-5)


def test_a_prompt_is_scored_the_same_with_and_without_continuations(tiny_llama):
    without = tiny_llama.inspect(PROMPT).tokens
    beside = tiny_llama.inspect(PROMPT, continuations=3, max_new_tokens=4, seed=1)
    assert drawn(beside, 0).reset_index(drop=True).equals(without)


def test_no_continuation_is_drawn_unless_asked(tiny_llama):
    report = tiny_llama.inspect("Question: open door\nAnswer: door.open()")
    assert set(report.tokens["source"]) == {"prompt"}
    assert report.run["continuations"] == []


# ---- seeds


def test_a_continuation_depends_on_its_seed_alone(tiny_llama):
    params = SamplingParams(temperature=1.2)
    many = tiny_llama.inspect(PROMPT, continuations=6, max_new_tokens=20, seed=10, params=params)
    for i in range(6):
        alone = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=20, seed=10 + i, params=params)
        assert ids_of(many, i + 1) == ids_of(alone)
        assert record_of(many, i + 1)["seed"] == 10 + i


def test_different_seeds_draw_differently(tiny_llama):
    report = tiny_llama.inspect(PROMPT, continuations=4, max_new_tokens=12, seed=0, params=SamplingParams(ignore_eos=True))
    assert len({tuple(ids_of(report, n)) for n in (1, 2, 3, 4)}) == 4


def test_the_same_seed_is_bit_equal_even_after_looking_around(tiny_llama):
    options = {"continuations": 2, "max_new_tokens": 12, "seed": 9}
    first = tiny_llama.inspect(PROMPT, **options)
    tiny_llama.inspect("something else", continuations=1, seed=1).with_mode("processed_logits")
    torch.manual_seed(1234)
    second = tiny_llama.inspect(PROMPT, **options)
    assert first.tokens.equals(second.tokens) and first.alternatives.equals(second.alternatives)


def test_a_seed_draws_the_same_from_cached_states(embedded):
    text = "It was a dark and stormy night; the rain fell in marshmallows."
    first = embedded.inspect(text, continuations=1, max_new_tokens=40, seed=7)
    embedded.rescore(first, SamplingParams(top_p=0.8))  # leaves the prompt's states as part of a longer text, equal but for rounding
    assert ids_of(embedded.inspect(text, continuations=1, max_new_tokens=40, seed=7)) == ids_of(first)


def test_a_drawn_seed_is_recorded_and_repeats_the_run(tiny_llama):
    first = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=10)
    again = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=10, seed=first.run["seed"])
    assert ids_of(first) == ids_of(again)
    assert first.run["seed"] != tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=1).run["seed"]


def test_the_largest_seed_leaves_no_room_for_a_second_continuation(tiny_llama):
    assert record_of(tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=1, seed=str(2**63 - 1)))["seed"] == 2**63 - 1
    with pytest.raises(InputError, match="seed must be at most 9223372036854775806 for 2 continuations"):
        tiny_llama.inspect(PROMPT, continuations=2, seed=2**63 - 1)


# ---- what is drawn


@pytest.mark.parametrize("fields", [{"temperature": 3.0}, {"temperature": 4.0, "top_k": 12}, {"temperature": 3.0, "top_p": 0.7}], ids=str)
def test_draws_follow_the_processed_probabilities(fields, tiny_llama):
    """Chi-square of 640 first tokens against the float64 definition; fixed seeds, so it passes or fails for good."""
    params = SamplingParams(**fields)
    ids = []
    for start in range(0, 640, 64):
        report = tiny_llama.inspect([40, 41, 42], continuations=64, max_new_tokens=1, seed=1000 + start, params=params, top_n=0)
        ids += report.tokens.query("sequence > 0")["token_id"].tolist()
    with torch.inference_mode():
        row = tiny_llama.loaded.model(torch.tensor([[40, 41, 42]])).logits[0, -1].double().numpy()
    steps = oracle.pipeline(row, oracle.Settings(**fields), [40, 41, 42], [])
    probs = oracle.softmax(steps[-1][1] if steps else row)
    counts = np.bincount(ids, minlength=len(probs))
    assert counts[probs == 0].sum() == 0
    common = probs * len(ids) >= 5
    expected = np.append(probs[common], probs[~common].sum()) * len(ids)
    observed = np.append(counts[common], counts[~common].sum())
    expected, observed = expected[expected > 0], observed[expected > 0]
    freedom = len(expected) - 1
    assert freedom >= 4
    chi_square = ((observed - expected) ** 2 / expected).sum()
    # Wilson-Hilferty: the cube root of chi²/k is nearly normal; 3.3 standard deviations is one failure in 2,000
    deviations = ((chi_square / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert deviations < 3.3


def test_greedy_takes_the_best_token_every_step(tiny_llama):
    report = tiny_llama.inspect(PROMPT, continuations=2, max_new_tokens=15, seed=3, params=SamplingParams(temperature=0.0, ignore_eos=True))
    assert ids_of(report, 1) == ids_of(report, 2)
    ids = list(report.run["prompt_ids"])
    for token in ids_of(report):
        with torch.inference_mode():
            assert token == int(tiny_llama.loaded.model(torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)


def test_greedy_same_as_transformers_generate(tiny_llama):
    prompt = torch.tensor([tiny_llama.inspect(PROMPT).run["prompt_ids"]])
    theirs = tiny_llama.loaded.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=12,
        do_sample=False,
        repetition_penalty=1.3,
        eos_token_id=None,
        pad_token_id=0,
    )
    ours = tiny_llama.inspect(
        PROMPT, continuations=1, max_new_tokens=12, params=SamplingParams(temperature=0.0, repetition_penalty=1.3, ignore_eos=True)
    )
    assert ids_of(ours) == theirs[0, prompt.shape[1] :].tolist()


def test_a_bias_of_100_forces_the_token_and_shows_its_raw_rank(tiny_llama):
    rows = drawn(tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=5, seed=1, params=SamplingParams(logit_bias={250: 100.0})))
    assert rows["token_id"].tolist() == [250] * 5
    assert np.exp(rows["processed_logprob"]).tolist() == pytest.approx([1.0] * 5)
    assert (rows["processed_rank"] == 1).all() and (rows["raw_rank"] > 1).any()


def test_only_allowed_ids_are_drawn(tiny_llama):
    allowed = (30, 40, 50)
    report = tiny_llama.inspect(PROMPT, continuations=3, max_new_tokens=10, seed=1, params=SamplingParams(allowed_token_ids=allowed))
    assert set(report.tokens.query("sequence > 0")["token_id"]) <= set(allowed)


def test_a_cut_token_is_never_drawn(tiny_llama):
    report = tiny_llama.inspect(PROMPT, continuations=16, max_new_tokens=20, seed=1, params=SamplingParams(top_k=3, temperature=2.0))
    rows = report.tokens.query("sequence > 0")
    assert (rows["cut_by"] == "").all() and rows["processed_rank"].max() <= 3


def test_a_bad_word_of_spaces_is_named(tiny_llama):
    with pytest.raises(InputError, match="bad_words: '   ' is only spaces"):
        tiny_llama.inspect(PROMPT, params=SamplingParams(bad_words=("   ",)))


def test_a_bad_word_of_two_tokens_is_not_completed(tiny_llama):
    tokenizer = tiny_llama.loaded.vocabulary.tokenizer
    q, z = tokenizer.encode("Q")[0], tokenizer.encode("Z")[0]

    def pairs(**fields):
        params = SamplingParams(allowed_token_ids=(q, z), temperature=50.0, **fields)
        ids = ids_of(tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=60, seed=1, params=params))
        return set(itertools.pairwise(ids))

    assert pairs() == {(q, q), (q, z), (z, q), (z, z)}
    assert pairs(bad_words=("ZZ",)) == {(q, q), (q, z), (z, q)}


# ---- when it ends


def test_the_end_token_is_a_row_and_ends_the_text(tiny_llama):
    report = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=5, params=SamplingParams(logit_bias={0: 100.0}))
    rows = drawn(report)
    assert rows["token_id"].tolist() == [0] and rows["token"].tolist() == ["<|end|>"]
    assert rows["raw_logprob"].notna().all()
    assert (record_of(report)["finish_reason"], record_of(report)["stop_reason"]) == ("stop", 0)
    assert not report.alternatives.query("sequence == 1").empty


def test_ignore_eos_goes_on(tiny_llama):
    params = SamplingParams(logit_bias={0: 100.0}, ignore_eos=True)
    report = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=5, params=params)
    assert ids_of(report) == [0] * 5
    assert record_of(report)["finish_reason"] == "length"


def test_min_tokens_holds_the_end_back(tiny_llama):
    report = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=9, params=SamplingParams(logit_bias={0: 100.0}, min_tokens=3))
    ids = ids_of(report)
    assert len(ids) == 4 and ids[-1] == 0 and 0 not in ids[:3]


def test_a_stop_id_ends_the_text(tiny_llama):
    report = tiny_llama.inspect(
        PROMPT, continuations=1, max_new_tokens=9, params=SamplingParams(logit_bias={65: 100.0}, stop_token_ids=(65,))
    )
    assert ids_of(report) == [65]
    assert record_of(report)["stop_reason"] == 65


def test_sequences_end_on_their_own(tiny_llama):
    """Rows that go on after another has ended equal their single runs; nothing is padded."""
    params = SamplingParams(logit_bias={0: 5.0}, frequency_penalty=0.5)
    many = tiny_llama.inspect(PROMPT, continuations=8, max_new_tokens=25, seed=20, params=params)
    lengths = {len(ids_of(many, n)) for n in range(1, 9)}
    assert len(lengths) > 2
    for n in range(1, 9):
        alone = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=25, seed=19 + n, params=params)
        assert ids_of(alone) == ids_of(many, n)
        assert drawn(alone)["processed_logprob"].tolist() == pytest.approx(drawn(many, n)["processed_logprob"].tolist(), abs=1e-4)
        assert 0 not in ids_of(many, n)[:-1]


def test_a_stop_string_across_tokens(tiny_llama):
    """Every token of the stop string is a row; the one that completes it is the last."""
    tokenizer = tiny_llama.loaded.vocabulary.tokenizer
    q, z = tokenizer.encode("Q")[0], tokenizer.encode("Z")[0]
    params = SamplingParams(allowed_token_ids=(q, z), temperature=50.0, stop=("never", "QZQ"))
    report = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=100, seed=2, params=params)
    assert report.texts[1].endswith("QZQ") and report.texts[1].count("QZQ") == 1
    assert (record_of(report)["finish_reason"], record_of(report)["stop_reason"]) == ("stop", "QZQ")
    assert "".join(drawn(report)["token"]) == report.texts[1]


def test_a_stop_string_is_found_in_text_not_in_the_notation_of_bytes(tiny_llama):
    r"""A byte that is no character is shown as \xff, which is not the text `xff`."""
    tokenizer = tiny_llama.loaded.vocabulary.tokenizer
    byte = tokenizer.convert_tokens_to_ids("ÿ")  # the byte 0xff
    params = SamplingParams(allowed_token_ids=(byte,), stop=("xff",))
    assert len(ids_of(tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=4, params=params))) == 4


def test_a_stop_string_that_was_held_back_does_not_end_a_later_text(tiny_llama):
    """Only a token that completes the stop string ends the text."""
    tokenizer = tiny_llama.loaded.vocabulary.tokenizer
    q, z = tokenizer.encode("Q")[0], tokenizer.encode("Z")[0]
    params = SamplingParams(logit_bias={q: 100.0, z: 60.0}, presence_penalty=2.0, frequency_penalty=2.0, stop=("Q",), min_tokens=2)
    free = SamplingParams(**{**params.model_dump(), "stop": ()})
    ids = ids_of(tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=40, seed=1, params=free))
    later = next(i for i, token in enumerate(ids) if token == q and i >= 2)
    stopped = ids_of(tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=40, seed=1, params=params))
    assert ids[0] == q and stopped == ids[: later + 1]


def test_min_tokens_holds_a_stop_string_back(tiny_llama):
    tokenizer = tiny_llama.loaded.vocabulary.tokenizer
    q = tokenizer.encode("Q")[0]
    params = SamplingParams(allowed_token_ids=(q,), stop=("Q",), min_tokens=3)
    report = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=9, params=params)
    assert len(ids_of(report)) == 4
    assert record_of(report)["finish_reason"] == "stop"


def test_the_limit_of_new_tokens(tiny_llama):
    report = tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=7, params=SamplingParams(ignore_eos=True))
    assert len(ids_of(report)) == 7
    assert (record_of(report)["finish_reason"], record_of(report)["stop_reason"]) == ("length", None)


# ---- streaming and cancelling


def run(running):
    events = []
    while True:
        try:
            events.append(next(running))
        except StopIteration as end:
            return events, end.value


def test_tokens_are_streamed_as_they_are_drawn(tiny_llama):
    events, report = run(tiny_llama.stream(PROMPT, continuations=3, max_new_tokens=10, seed=3, params=SamplingParams(logit_bias={0: 4.0})))
    streamed = {1: [], 2: [], 3: []}
    scores = {1: [], 2: [], 3: []}
    for event in (e for e in events if isinstance(e, SampledTokens)):
        for number, token, raw in zip(event.sequences, event.ids, event.raw_logprobs):
            streamed[number].append(token)
            scores[number].append(raw)
    for number in (1, 2, 3):
        assert streamed[number] == ids_of(report, number)
        assert scores[number] == pytest.approx(drawn(report, number)["raw_logprob"].tolist())


def test_progress_says_what_is_going_on(tiny_llama):
    fresh = Inspector(tiny_llama.loaded)
    events, _ = run(fresh.stream(PROMPT, continuations=1, max_new_tokens=3))
    progress = [e for e in events if isinstance(e, Progress)]
    assert {"running the model", "scoring", "sampling"} <= {p.stage for p in progress}
    assert all(0 <= p.done <= p.total for p in progress)


def test_cancelling_while_sampling_keeps_what_was_drawn_within_one_step(tiny_llama):
    state = {"steps": 0}
    running = tiny_llama.stream(
        PROMPT, continuations=2, max_new_tokens=50, seed=1, params=SamplingParams(ignore_eos=True), is_cancelled=lambda: state["steps"] >= 3
    )
    while True:
        try:
            event = next(running)
        except StopIteration as end:
            report = end.value
            break
        state["steps"] += isinstance(event, SampledTokens)
    assert len(ids_of(report, 1)) == len(ids_of(report, 2)) == 3
    assert record_of(report)["finish_reason"] == "cancelled"


def test_cancelling_before_all_is_scored_raises(tiny_llama):
    with pytest.raises(Cancelled):
        tiny_llama.inspect(PROMPT, continuations=1, is_cancelled=lambda: True)


def test_cancelling_gives_the_memory_back():
    """No keys and values of the cancelled text are left alive, in the cache of prompts or anywhere."""
    inspector = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer())

    def alive() -> int:
        gc.collect()
        return sum(type(thing) is DynamicCache for thing in gc.get_objects())

    before = alive()
    for steps in (1, 2):  # in the model, in scoring
        asked = itertools.count(1)
        with pytest.raises(Cancelled):
            inspector.inspect(list(range(3, 300)), is_cancelled=lambda asked=asked, steps=steps: next(asked) >= steps)
        assert alive() == before
    inspector.inspect(list(range(3, 300)))
    assert alive() == before + 1  # what a finished one keeps


def test_a_run_after_a_cancelled_one_starts_afresh(tiny_llama):
    fresh = tiny_llama.inspect("a cat sat", continuations=1, max_new_tokens=5, seed=1)
    with pytest.raises(Cancelled):
        tiny_llama.inspect(PROMPT, continuations=1, is_cancelled=lambda: True)
    assert tiny_llama.inspect("a cat sat", continuations=1, max_new_tokens=5, seed=1).tokens.equals(fresh.tokens)


def test_the_mode_of_a_continuation_selects_its_score(tiny_llama):
    for mode in LogprobsMode:
        rows = drawn(tiny_llama.inspect(PROMPT, continuations=1, max_new_tokens=5, seed=1, mode=mode, params=SamplingParams(top_k=9)))
        assert rows["score"].tolist() == rows[mode.column].tolist()


def test_an_empty_prompt_cannot_be_continued(tiny_llama):
    with pytest.raises(InputError, match="continuations need at least one prompt token"):
        tiny_llama.inspect("", completion=" yes", continuations=1)


def test_a_sentencepiece_model_continues_too():
    inspector = tiny_models.inspector(tiny_models.gemma2(), tiny_models.sentencepiece_tokenizer())
    report = inspector.inspect("the cat", continuations=2, max_new_tokens=40, seed=1, params=SamplingParams(ignore_eos=True, top_k=30))
    for number in (1, 2):
        again = inspector.inspect("the cat", completion=ids_of(report, number)).tokens.query("source == 'completion'")
        assert drawn(report, number)["raw_logprob"].tolist() == pytest.approx(again["raw_logprob"].tolist(), abs=1e-4)
