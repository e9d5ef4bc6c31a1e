"""A report looked at again: its tokens under other parameters, and the pipeline step by step at one place."""

import math

import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch
from transformers import RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper

from inspector import EmptyRowError, InputError, Inspector, SamplingParams
from inspector.report import Report

PROMPT = "the cat sat on the mat. the red fox"
PARAMS = SamplingParams(temperature=0.5, top_k=3, repetition_penalty=1.4)


@pytest.fixture(scope="module")
def report(tiny_llama):
    free = SamplingParams(ignore_eos=True)
    return tiny_llama.inspect(PROMPT, completion=" inspects", params=free, continuations=2, max_new_tokens=5, seed=3, top_n=4)


@pytest.mark.parametrize("number", [1, 2])
def test_a_continuation_under_other_parameters_is_scored_as_a_completion(tiny_llama, report, number):
    again = tiny_llama.rescore(report, PARAMS)
    ids = report.run["continuations"][number - 1]["ids"]
    expected = tiny_llama.inspect(report.run["prompt_ids"], completion=ids, params=PARAMS, top_n=4)
    for table, wanted in ((again.tokens, expected.tokens), (again.alternatives, expected.alternatives)):
        mine = table[table["sequence"] == number].drop(columns=["sequence", "source", "start", "end"], errors="ignore")
        theirs = wanted[wanted["position"] >= len(report.run["prompt_ids"])].drop(
            columns=["sequence", "source", "start", "end"], errors="ignore"
        )
        pd.testing.assert_frame_equal(mine.reset_index(drop=True), theirs.reset_index(drop=True), atol=1e-5, rtol=0)


def test_the_text_under_other_parameters_is_scored_as_if_asked_so(tiny_llama, report):
    again = tiny_llama.rescore(report, PARAMS)
    expected = tiny_llama.inspect(PROMPT, completion=" inspects", params=PARAMS, top_n=4).tokens
    pd.testing.assert_frame_equal(again.tokens[again.tokens["sequence"] == 0], expected, atol=1e-5, rtol=0)
    assert again.texts == report.texts
    assert again.run["params"] == PARAMS.model_dump(mode="json")
    assert again.run["continuations"] == report.run["continuations"]
    assert again.run["drawn_with"] == report.run["params"]


def test_what_drew_the_continuations_is_kept_when_parameters_move_twice(tiny_llama, report):
    again = tiny_llama.rescore(tiny_llama.rescore(report, PARAMS), SamplingParams(top_p=0.5))
    assert again.run["drawn_with"] == report.run["params"]


def test_the_steps_are_those_of_transformers(tiny_llama):
    report = tiny_llama.inspect(PROMPT, params=PARAMS)
    ids = torch.tensor([report.run["prompt_ids"]])
    with torch.inference_mode():
        logits = tiny_llama.loaded.model(ids).logits[0]
    for position in range(1, ids.shape[1]):
        before, values = ids[:, :position], logits[position - 1 : position]
        expected = [values]
        for step in (RepetitionPenaltyLogitsProcessor(1.4), TemperatureLogitsWarper(0.5), TopKLogitsWarper(3)):
            expected.append(step(before, expected[-1]))
        table = tiny_llama.pipeline_steps(report, 0, position)
        assert table["step"].tolist() == ["raw", "repetition_penalty", "temperature", "top_k"]
        own = int(ids[0, position])
        assert table["logit"].tolist() == pytest.approx([float(x[0, own]) for x in expected], abs=1e-4)
        assert table["logprob"].tolist() == pytest.approx([float(x.log_softmax(1)[0, own]) for x in expected], abs=1e-4)
        assert table["kept_tokens"].tolist() == [int(x.isfinite().sum()) for x in expected]


def test_the_steps_end_at_the_processed_values_of_every_sequence(tiny_llama, report):
    again = tiny_llama.rescore(report, PARAMS)
    for token in again.tokens[again.tokens["position"] > 0].itertuples(index=False):
        table = tiny_llama.pipeline_steps(again, token.sequence, token.position)
        assert table["logit"].iloc[0] == pytest.approx(token.raw_logit, abs=1e-4)
        assert table["logit"].iloc[-1] == pytest.approx(token.processed_logit, abs=1e-4)
        assert table["logprob"].iloc[-1] == pytest.approx(token.processed_logprob, abs=1e-4)
        assert table["kept_tokens"].iloc[-1] == token.kept_tokens
        first_cut = next((s for s, x in zip(table["step"], table["logit"]) if x == -math.inf), "")
        assert first_cut == token.cut_by


def test_the_steps_of_other_tokens(tiny_llama, report):
    table = tiny_llama.pipeline_steps(report, 0, 2, token_ids=[5, 9])
    assert table["token_id"].tolist() == [5, 9]
    assert np.isfinite(table["logit"]).all()


def test_prompt_rows_that_are_not_processed_have_no_steps(tiny_llama):
    report = tiny_llama.inspect(PROMPT, completion=" inspects", params=PARAMS, prompt_processing="off")
    assert tiny_llama.pipeline_steps(report, 0, 2)["step"].tolist() == ["raw"]
    assert len(tiny_llama.pipeline_steps(report, 0, len(report.run["prompt_ids"]))) == 4


@pytest.mark.parametrize(("sequence", "position"), [(0, 0), (0, 10**6), (9, 1), (-1, 1)])
def test_places_without_a_prediction_are_refused(tiny_llama, report, sequence, position):
    with pytest.raises(InputError, match="must be a whole number in"):
        tiny_llama.pipeline_steps(report, sequence, position)


def test_a_report_of_another_model_or_from_files_is_refused(tiny_llama, report, tmp_path):
    other = tiny_models.inspector(tiny_models.llama().double(), tiny_models.byte_level_tokenizer())
    with pytest.raises(InputError, match="not the loaded model"):
        other.pipeline_steps(report, 0, 1)
    with pytest.raises(InputError, match="no model behind it"):
        tiny_llama.rescore(Report.load(report.save(tmp_path)), PARAMS)


@pytest.mark.parametrize("params", [{"min_p": 0.1}, 5, "x"], ids=str)
def test_params_of_another_kind_are_refused(tiny_llama, report, params):
    for call in (lambda: tiny_llama.rescore(report, params), lambda: tiny_llama.inspect(PROMPT, params=params)):
        with pytest.raises(InputError, match="params must be SamplingParams"):
            call()


@pytest.mark.parametrize("position", ["a", None, [5], 5.0, True])
def test_a_position_that_is_no_number_is_refused(tiny_llama, report, position):
    with pytest.raises(InputError, match="must be a whole number"):
        tiny_llama.pipeline_steps(report, 0, position)


def test_a_bias_beyond_float32_is_refused():
    with pytest.raises(InputError, match="logit_bias of token id 1 must be within"):
        SamplingParams(logit_bias={1: 1e39})


@pytest.mark.parametrize("path", ["numba", "torch"])
@pytest.mark.parametrize("continuations", [0, 1])
def test_a_penalty_that_leaves_float32_is_named(tiny_llama, path, continuations):
    inspector = Inspector(tiny_llama.loaded, kernel_path=path)
    with pytest.raises(EmptyRowError, match=r"token .*: the processed logits hold NaN or .inf: a penalty, bias or temperature"):
        inspector.inspect(PROMPT, params=SamplingParams(repetition_penalty=1e-300), continuations=continuations)


def test_a_stop_string_that_is_no_text_is_refused():
    with pytest.raises(InputError, match="stop must not contain a lone surrogate"):
        SamplingParams(stop=("\ud800",))


def test_add_bos_of_another_kind_is_refused(tiny_llama):
    with pytest.raises(InputError, match="add_bos must be true, false or None"):
        tiny_llama.inspect(PROMPT, add_bos="x")
