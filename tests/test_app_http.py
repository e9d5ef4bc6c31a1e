"""The real app over HTTP, driven by gradio_client, against the Python API."""

import io
import json
import zipfile

import pandas as pd
import pytest
from browser.served import served_app
from gradio_client import Client
from gradio_client.exceptions import AppError

from inspector import SamplingParams

pytestmark = pytest.mark.real

TEXT = "The capital of France is Paris."
BIG_SEED = "9007199254740993"  # 2**53 + 1: the first whole number that a float loses


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory):
    with served_app(tmp_path_factory.mktemp("app")) as url:
        yield Client(url, verbose=False, download_files=str(tmp_path_factory.mktemp("downloads")))


def ask(client: Client, **arguments):
    return client.predict(api_name="/inspect", **arguments)


def test_scores_equal_the_python_api(client, embedded):
    params = {"temperature": 0.8, "top_p": 0.9}
    report, _ = ask(client, prompt=TEXT, params=params, mode="processed_logprobs", top_n=4)
    expected = embedded.inspect(TEXT, params=SamplingParams(**params), mode="processed_logprobs", top_n=4)
    got = pd.DataFrame(report["tokens"])
    assert got["token_id"].tolist() == expected.tokens["token_id"].tolist()
    assert got["cut_by"].tolist() == expected.tokens["cut_by"].tolist()
    for name in ("raw_logit", "raw_logprob"):
        assert got[name][1:].tolist() == pytest.approx(expected.tokens[name][1:].tolist(), abs=1e-4)
    assert report["tokens"][0]["score"] is None
    assert len(report["alternatives"]) == len(expected.alternatives)


def test_file_holds_the_same_report(client):
    report, path = ask(client, prompt=TEXT)
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == ["alternatives.csv", "report.json", "run.json", "tokens.csv"]
        tokens = pd.read_csv(io.BytesIO(archive.read("tokens.csv")), keep_default_na=False, na_values={"raw_logprob": [""]})
        assert json.loads(archive.read("run.json"))["prompt_ids"] == report["run"]["prompt_ids"]
    assert tokens["token"].tolist() == [row["token"] for row in report["tokens"]]
    assert tokens["raw_logprob"][1:].tolist() == pytest.approx([row["raw_logprob"] for row in report["tokens"]][1:], abs=1e-6)


def test_continuations_from_a_seed_that_a_float_would_lose(client, embedded):
    report, _ = ask(client, prompt=TEXT, continuations=2, max_new_tokens=5, seed=BIG_SEED)
    expected = embedded.inspect(TEXT, continuations=2, max_new_tokens=5, seed=BIG_SEED)
    assert [c["seed"] for c in report["run"]["continuations"]] == [2**53 + 1, 2**53 + 2]
    assert report["texts"] == list(expected.texts)


def test_chat_completion_and_ids(client, embedded):
    chat = [{"role": "user", "content": "Hello"}]
    report, _ = ask(client, chat=chat, add_generation_prompt=False)
    template = embedded.loaded.vocabulary.tokenizer.apply_chat_template(chat, tokenize=False)
    assert report["texts"][0] == template
    report, _ = ask(client, prompt_ids=[504, 3575], completion=" of")
    assert report["run"]["prompt_ids"] == [504, 3575]
    assert [row["source"] for row in report["tokens"]] == ["prompt", "prompt", "completion"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"params": {"top_p": 1.5}}, "top_p must be in (0, 1], got 1.5"),
        ({"params": {"topp": 1}}, "unknown sampling parameter 'topp'"),
        ({"mode": "raw_logrobs"}, "mode must be one of raw_logits, raw_logprobs, processed_logits, processed_logprobs, got 'raw_logrobs'"),
        ({"seed": str(2**63)}, "seed must be in [0, 9223372036854775807], got 9223372036854775808"),
        ({"top_n": 101}, "top_n must be a whole number in [0, 100], got 101"),
        ({"prompt_ids": [1]}, "give either prompt or prompt_ids, got both"),
        ({"chat": [{"role": "user", "content": "x"}]}, "give either prompt or chat, got both"),
    ],
)
def test_errors_name_what_is_wrong(client, arguments, message):
    with pytest.raises(AppError) as error:
        ask(client, prompt=TEXT, **arguments)
    assert message in str(error.value)


def test_hostile_text_comes_back_unchanged(client):
    text = "<script>1</script> </textarea> &lt; \u202e \u0000 \"quoted\" 'too' \r\n\t="
    report, _ = ask(client, prompt=text)
    assert report["texts"] == [text]


def test_only_the_named_endpoint_is_public(client):
    listed = client.view_api(return_format="dict", print_info=False)
    assert list(listed["named_endpoints"]) == ["/inspect"]
    assert not listed["unnamed_endpoints"]
