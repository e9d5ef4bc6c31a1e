"""What the heatmap is sent: complete, compact, and no markup on its way."""

import json

import pytest

from inspector import SamplingParams
from inspector.page.heatmap import payload
from inspector.page.session import Result

TEXT = "The capital of France is Paris. <b>An owl</b> 🦉 flies."


@pytest.fixture(scope="module")
def report(tiny_llama):
    return tiny_llama.inspect(TEXT, continuations=2, max_new_tokens=5, seed=1, params=SamplingParams(top_k=20))


def test_sections_hold_every_token_once_and_the_whole_text(report):
    data = json.loads(payload(Result(1, "a result", report)))
    spans = [(s["first"], s["last"]) for s in data["sections"]]
    assert [b for _, b in spans[:-1]] == [a for a, _ in spans[1:]]
    assert (spans[0][0], spans[-1][1]) == (0, len(report.tokens))
    assert [s["text"] for s in data["sections"]] == list(report.texts)


def test_missing_and_cut_are_null_and_told_apart(report):
    data = json.loads(payload(Result(1, "a result", report)))
    column, cut = data["columns"]["processed_logprob"], data["columns"]["cut"]
    assert column[0] is None and cut[0] == 0
    expected = report.tokens["cut_by"] == "top_k"
    assert [data["cuts"][c] == "top_k" for c in cut] == expected.tolist()
    assert all(v is None for v, is_cut in zip(column, expected) if is_cut)


def test_bytes_are_sent_for_parts_of_characters_only(report):
    data = json.loads(payload(Result(1, "a result", report)))
    for i, (token_bytes, token) in enumerate(zip(report.tokens["token_bytes"], report.tokens["token"])):
        assert (str(i) in data["hex"]) == ("\\x" in token)
        assert data["hex"].get(str(i), token_bytes) == token_bytes


def test_no_angle_bracket_leaves_the_server(report):
    assert "<" not in payload(Result(1, "a result", report))
    assert TEXT in json.loads(payload(Result(1, "a result", report)))["sections"][0]["text"]


@pytest.mark.real
def test_fewer_than_400_bytes_a_token(embedded):
    text = " ".join(f"Sentence {i} about the {w} and its {w[::-1]}." for i, w in enumerate(["river", "house", "lamp", "owl", "cat"] * 20))
    report = embedded.inspect(text, params=SamplingParams(temperature=0.7, top_p=0.9))
    assert len(payload(Result(1, "a result", report)).encode()) / len(report.tokens) < 400
