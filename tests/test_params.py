"""Sampling parameters, seeds and modes: ranges, and messages that name the field and what would be right."""

import json

import pytest

from inspector import InputError, LogprobsMode, ParameterError, SamplingParams
from inspector.params import check_seed


def test_every_default_is_neutral():
    assert SamplingParams().model_dump() == {
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "logit_bias": {}, "allowed_token_ids": None, "bad_words": (), "min_tokens": 0, "stop": (),
        "stop_token_ids": (), "ignore_eos": False,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "value", "message"), [
    ("temperature", -0.1, "temperature must be in [0, inf), got -0.1"),
    ("temperature", float("inf"), "temperature must be in [0, inf), got inf"),
    ("temperature", float("nan"), "temperature must be in [0, inf), got nan"),
    ("temperature", 1e40, "temperature must be at most 1e+30, got 1e+40"),
    ("repetition_penalty", 1e39, "repetition_penalty must be at most 1e+30, got 1e+39"),
    ("top_p", 1.5, "top_p must be in (0, 1], got 1.5"),
    ("top_p", 0.0, "top_p must be in (0, 1], got 0"),
    ("top_p", float("nan"), "top_p must be in (0, 1], got nan"),
    ("min_p", -0.01, "min_p must be in [0, 1], got -0.01"),
    ("min_p", 1.01, "min_p must be in [0, 1], got 1.01"),
    ("repetition_penalty", 0.0, "repetition_penalty must be in (0, inf), got 0"),
    ("repetition_penalty", -1.0, "repetition_penalty must be in (0, inf), got -1"),
    ("presence_penalty", 2.1, "presence_penalty must be in [-2, 2], got 2.1"),
    ("presence_penalty", -2.1, "presence_penalty must be in [-2, 2], got -2.1"),
    ("frequency_penalty", 2.5, "frequency_penalty must be in [-2, 2], got 2.5"),
    ("frequency_penalty", -9.0, "frequency_penalty must be in [-2, 2], got -9"),
    ("top_k", -5, "top_k must be 0 or -1 (off) or at least 1, got -5"),
    ("min_tokens", -1, "min_tokens must be at least 0, got -1"),
    ("allowed_token_ids", (), "allowed_token_ids must name at least one token id, got an empty list (leave it out to allow all)"),
    ("bad_words", ("",), "bad_words must not contain an empty string"),
    ("stop", ("a", ""), "stop must not contain an empty string"),
    ("logit_bias", {3: float("-inf")},
     "logit_bias of token id 3 must be a finite number, got -inf (use allowed_token_ids or bad_words to cut)"),
    ("temperature", True, "temperature must be a number, got True"),
    ("ignore_eos", 1, "ignore_eos must be true or false, got 1"),
])  # fmt: skip
def test_out_of_range_names_the_field_and_the_range(name, value, message):
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**{name: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "value"), [
    ("temperature", 0.0), ("temperature", 1e-38), ("temperature", 100.0), ("top_p", 1e-9), ("top_p", 1.0), ("min_p", 0.0), ("min_p", 1.0),
    ("repetition_penalty", 1e-6), ("presence_penalty", -2.0), ("presence_penalty", 2.0), ("frequency_penalty", -2.0), ("top_k", 5_000_000),
])  # fmt: skip
def test_the_ends_of_a_range_are_inside(name, value):
    assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize("off", [0, -1])
def test_both_ways_of_switching_top_k_off(off):
    assert SamplingParams(top_k=off).top_k == 0


@pytest.mark.parametrize(("name", "value"), [
    ("temperature", "warm"), ("temperature", None), ("top_k", 2.5), ("top_p", []), ("logit_bias", {"a": 1.0}), ("logit_bias", [1]),
    ("stop_token_ids", ("x",)), ("presence_penalty", "much"), ("bad_words", (1,)),
])  # fmt: skip
def test_the_wrong_kind_of_value_is_one_line_that_names_the_field(name, value):
    with pytest.raises(ParameterError, match=f"^{name}") as caught:
        SamplingParams(**{name: value})
    assert "\n" not in str(caught.value)


def test_one_word_is_not_taken_for_a_list_of_letters():
    for name in ("stop", "bad_words"):
        with pytest.raises(ParameterError, match=name):
            SamplingParams(**{name: "stop"})


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_true_is_no_penalty(name):
    with pytest.raises(ParameterError, match=name):
        SamplingParams(**{name: True})


def test_an_unknown_parameter_lists_the_known_ones():
    with pytest.raises(ParameterError, match="unknown sampling parameter 'temprature'; known are temperature, top_k"):
        SamplingParams(temprature=0.5)


def test_parameters_are_frozen():
    with pytest.raises(Exception, match="frozen"):
        SamplingParams().temperature = 2.0


def test_parameters_survive_json():
    params = SamplingParams(logit_bias={3: 0.5}, allowed_token_ids=(1, 2), stop=("x",), top_k=3, temperature=0.3)
    assert SamplingParams(**json.loads(json.dumps(params.model_dump(mode="json")))) == params


# ---- seeds


@pytest.mark.parametrize("seed", [0, 1, 2**53 + 1, 2**63 - 1])
def test_a_seed_keeps_every_digit(seed):
    assert check_seed(seed) == seed
    assert check_seed(str(seed)) == seed


@pytest.mark.parametrize("seed", [2**63, 2**64, -1, str(2**63)])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(InputError, match=r"^seed must be in \[0, 9223372036854775807\]"):
        check_seed(seed)


@pytest.mark.parametrize("seed", [1.0, 9007199254740993.0, "1e3", "0x10", "seven", "1.5", True, "٣", "--1", "-", "9" * 5000])
def test_what_is_no_whole_number_is_no_seed(seed):
    with pytest.raises(InputError, match=r"^seed must be"):
        check_seed(seed)


@pytest.mark.parametrize("unset", [None, ""])
def test_zero_is_a_seed_and_nothing_is_none(unset):
    assert check_seed(unset) is None
    assert check_seed(0) == 0


# ---- modes


@pytest.mark.parametrize("word", ["raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"])
def test_the_four_modes(word):
    assert LogprobsMode.parse(word).value == word
    assert LogprobsMode.parse(LogprobsMode(word)) is LogprobsMode(word)


@pytest.mark.parametrize("word", ["raw_logrobs", "", "RAW_LOGITS", "raw_logprob", None, 1, ["raw_logits"]])
def test_any_other_word_lists_the_four(word):
    with pytest.raises(InputError, match="mode must be one of raw_logits, raw_logprobs, processed_logits, processed_logprobs, got"):
        LogprobsMode.parse(word)


def test_each_mode_names_its_column_and_unit():
    assert [(m.column, m.unit) for m in LogprobsMode] == [
        ("raw_logit", "logit"), ("raw_logprob", "nats"), ("processed_logit", "logit"), ("processed_logprob", "nats"),
    ]  # fmt: skip
