"""The command line: one real process, and the same `main` in this one, since a process takes seconds to import torch."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import tiny_models

from inspector import Inspector, Report, SamplingParams
from inspector.cli import main

ROOT = Path(__file__).parents[1]
TEXT = "The capital of France is Paris."


def process(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "inspector", *arguments], cwd=ROOT, input=stdin, capture_output=True, timeout=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that loads in no time, for everything but the numbers."""
    place = tmp_path_factory.mktemp("tiny")
    tiny_models.llama().save_pretrained(place)
    tiny_models.byte_level_tokenizer().save_pretrained(place)
    return str(place)


def test_a_process_writes_what_the_python_api_gives(embedded: Inspector, tmp_path):
    (tmp_path / "params.json").write_text('{"temperature": 0.7, "top_k": 20}')
    done = process(
        "score", "--text", TEXT, "--completion", " Really?", "--mode", "processed_logprobs", "--params", str(tmp_path / "params.json"),
        "--dtype", "float32", "--device", "cpu", "--top-n", "3", "--token-ids", "28,30", "--continuations", "2",
        "--max-new-tokens", "4", "--seed", "7", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    report = embedded.inspect(
        TEXT, completion=" Really?", mode="processed_logprobs", params=SamplingParams(temperature=0.7, top_k=20),
        top_n=3, token_ids=[28, 30], continuations=2, max_new_tokens=4, seed=7,
    )  # fmt: skip
    written = Report.load(tmp_path / "out")
    pd.testing.assert_frame_equal(written.tokens, report.tokens, rtol=1e-4, atol=1e-4)
    pd.testing.assert_frame_equal(written.alternatives, report.alternatives, rtol=1e-4, atol=1e-4)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["seed"] == 7 and record["params"]["top_k"] == 20 and record["model"]["kind"] == "embedded"
    assert record["model"]["revision"].startswith("sha256:")


def test_a_run_can_be_repeated_from_its_record(folder, tmp_path):
    assert main(["score", "--text", "ab", "--continuations", "1", "--model", folder, "--out", str(tmp_path / "a")]) == 0
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    again = [
        "score", "--prompt-ids", ",".join(map(str, record["prompt_ids"])), "--continuations", "1", "--seed", str(record["seed"]),
        "--model", folder, "--out", str(tmp_path / "b"),
    ]  # fmt: skip
    assert main(again) == 0
    assert (tmp_path / "a" / "tokens.csv").read_bytes() == (tmp_path / "b" / "tokens.csv").read_bytes()


def test_text_file_and_standard_input_are_taken_byte_for_byte(folder, tmp_path, monkeypatch):
    text = "a\r\nb\n \tab"
    (tmp_path / "t.txt").write_bytes(text.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    for given in (str(tmp_path / "t.txt"), "-"):
        assert main(["score", "--text-file", given, "--model", folder, "--out", str(tmp_path / "out")]) == 0
        assert Report.load(tmp_path / "out").text == text


def test_chat_file(tmp_path):
    place = tmp_path / "model"
    tiny_models.llama().save_pretrained(place)
    tiny_models.byte_level_tokenizer(
        chat_template="{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    ).save_pretrained(place)
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "Good morning"}]))
    assert main(["score", "--chat", str(tmp_path / "chat.json"), "--model", str(place), "--out", str(tmp_path / "out")]) == 0
    assert Report.load(tmp_path / "out").text == "<|user|>Good morning"


@pytest.mark.parametrize(
    ("arguments", "files", "message"),
    [
        (["--mode", "raw_logrobs"], {}, "raw_logits, raw_logprobs, processed_logits, processed_logprobs, got 'raw_logrobs'"),
        (["--params", "p.json"], {"p.json": '{"top_p": 1.5}'}, "top_p must be in (0, 1], got 1.5"),
        (["--params", "p.json"], {"p.json": '{"topp": 1}'}, "unknown sampling parameter 'topp'"),
        (["--params", "p.json"], {"p.json": "[1]"}, "must hold a JSON object, got list"),
        (["--params", "p.json"], {"p.json": "{"}, "is not JSON"),
        (["--params", "missing.json"], {}, "cannot read"),
        (["--seed", "9223372036854775808"], {}, "seed must be in [0, 9223372036854775807]"),
        (["--seed", "1.5"], {}, "seed must be a whole number"),
        (["--top-n", "101"], {}, "top_n must be a whole number in [0, 100], got 101"),
        (["--top-n", "x"], {}, "--top-n must be a whole number, got 'x'"),
        (["--continuations", "-1"], {}, "continuations must be a whole number in [0, 64], got -1"),
        (["--token-ids", "5,100000"], {}, "token_ids must be token ids in [0, "),
        (["--dtype", "int8"], {}, "dtype must be auto, float32, bfloat16, float16, got 'int8'"),
        (["--device", "tpu7"], {}, "device must be auto, cpu, cuda, cuda:N or mps, got 'tpu7'"),
        (["--kernels", "magic"], {}, "kernels must be one of"),
        (["--prompt-processing", "on"], {}, "prompt_processing must be one of as_sampled, off, got 'on'"),
        (["--model", "./nowhere"], {}, "neither 'embedded', a folder, a .gguf file nor a Hub id"),
        (["--model", "nowhere.gguf"], {}, "there is no GGUF file at nowhere.gguf"),
        (["--out", "p.json"], {"p.json": "x"}, "--out must be a folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_exit_code_1(folder, tmp_path, capsys, arguments, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    arguments = [str(tmp_path / a) if a in files or a == "missing.json" else a for a in arguments]
    base = ["score", "--text", "ab", "--out", str(tmp_path / "out"), "--model", folder]
    assert main([*base, *arguments]) == 1
    error = capsys.readouterr().err.strip()
    assert message in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [[], ["score"], ["score", "--text", "a"], ["score", "--text", "a", "--prompt-ids", "1", "--out", "o"], ["guess"], ["score", "--what"]],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_text_that_is_not_utf8_is_refused(tmp_path, capsys):
    (tmp_path / "t.txt").write_bytes(b"ab\xff")
    assert main(["score", "--text-file", str(tmp_path / "t.txt"), "--out", str(tmp_path / "out")]) == 1
    assert "is not UTF-8 (byte 2)" in capsys.readouterr().err
