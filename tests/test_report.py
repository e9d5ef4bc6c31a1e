"""Tables, files and what they say when they are read back."""

import csv
import json
import math

import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch

from inspector import InputError, LogprobsMode, Report, SamplingParams
from inspector.modes import LogprobsMode as Mode
from inspector.report import (
    ALTERNATIVE_COLUMNS,
    FLOATS,
    TOKEN_COLUMNS,
    WHOLES,
    ScoredSequence,
    build_report,
    read_csv,
    summarise,
    write_csv,
)
from inspector.scoring import ScoredRows
from inspector.tokens import TokenizedText

INF = float("inf")
HOSTILE = [
    "NA", "null", "nan", "None", "N/A", "", '"', '""', ",", ";", "\n", "\r", "\r\n", "\n\n", "a\rb", "\x00", "a\x00b", "\t", " ", "  b",
    "'", "\\", "=1+1", "+1", "-1", "@SUM(A1)", "-inf", "inf", "True", "1.0", "00", "<b>", "&amp;", "#", "\ufeff", "水", "é", "🦉",
    "\\N", "\x1a", "\u2028", "\x85",
]  # fmt: skip


@pytest.fixture(scope="module")
def report(tiny_llama):
    params = SamplingParams(top_k=5, temperature=0.7, min_tokens=2)
    return tiny_llama.inspect(
        'the "cat",\n\r sat 🦉', completion=" on", params=params, continuations=2, max_new_tokens=6, seed=3, token_ids=[9]
    )


@pytest.fixture
def hostile():
    """A tokens table with one hostile text a row, and every kind of number."""
    T = len(HOSTILE)
    numbers = np.array([np.nan, -INF, 0.0, -0.1, 1e-45, -3.4028235e38, 1 / 3, 16777217.0], dtype=np.float32)
    table = {}
    for name in TOKEN_COLUMNS:
        if name in FLOATS:
            table[name] = np.resize(numbers, T)
        elif name in ("raw_rank", "processed_rank", "kept_tokens"):
            table[name] = pd.array([None, *range(1, T)], dtype="Int64")
        elif name in WHOLES:
            table[name] = np.arange(T)
        else:
            table[name] = pd.Series(HOSTILE, dtype=object)
    return pd.DataFrame(table)


# ---- CSV


def documented_read(path):
    """Exactly as the documentation of the files says."""
    numeric = [c for c in TOKEN_COLUMNS if c in (*FLOATS, *WHOLES)]
    return pd.read_csv(path, keep_default_na=False, na_values={c: [""] for c in numeric})


@pytest.mark.parametrize("column", TOKEN_COLUMNS)
def test_hostile_tokens_survive_pandas(column, hostile, tmp_path):
    write_csv(hostile, tmp_path / "tokens.csv")
    back = documented_read(tmp_path / "tokens.csv")
    assert len(back) == len(HOSTILE)
    if column in (*FLOATS, *WHOLES):
        ours, theirs = (t[column].astype("float64").to_numpy(na_value=np.nan).astype(np.float32) for t in (hostile, back))
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert back[column].tolist() == HOSTILE


def test_hostile_tokens_survive_the_csv_module(hostile, tmp_path):
    write_csv(hostile, tmp_path / "tokens.csv")
    with (tmp_path / "tokens.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["token"] for row in rows] == HOSTILE
    assert list(rows[0]) == list(TOKEN_COLUMNS)


def test_read_csv_gives_back_the_same_table(hostile, tmp_path):
    write_csv(hostile, tmp_path / "tokens.csv")
    pd.testing.assert_frame_equal(read_csv(tmp_path / "tokens.csv"), hostile.astype(dict.fromkeys(("sequence", "position"), "int64")))


def test_numbers_make_a_full_float32_round_trip(tmp_path):
    values = torch.randn(2000, generator=torch.Generator().manual_seed(1)).mul(1e3).numpy()
    write_csv(pd.DataFrame({"score": values}), tmp_path / "t.csv")
    assert read_csv(tmp_path / "t.csv")["score"].to_numpy().tobytes() == values.tobytes()


def test_missing_is_empty_and_cut_is_minus_infinity(report, tmp_path):
    report.save(tmp_path)
    with (tmp_path / "tokens.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["raw_logprob"] == rows[0]["raw_rank"] == rows[0]["kept_tokens"] == ""
    cut = [row for row in rows if row["cut_by"]]
    assert cut and all(row["processed_logprob"] == "-inf" and row["processed_rank"] == "" for row in cut)


def test_the_file_is_utf8_without_a_mark(report, tmp_path):
    report.save(tmp_path)
    assert (tmp_path / "tokens.csv").read_bytes().startswith(b"sequence,source,position,token_id,token,")


@pytest.mark.parametrize("name", ["tokens", "alternatives"])
def test_files_hold_the_documented_columns(name, report, tmp_path):
    report.save(tmp_path)
    columns = {"tokens": TOKEN_COLUMNS, "alternatives": ALTERNATIVE_COLUMNS}[name]
    assert tuple(getattr(report, name).columns) == columns
    assert tuple(pd.read_csv(tmp_path / f"{name}.csv", nrows=0).columns) == columns


def test_the_contract_of_the_columns():
    assert ",".join(TOKEN_COLUMNS) == (
        "sequence,source,position,token_id,token,token_bytes,start,end,score,raw_logit,raw_logprob,processed_logit,processed_logprob,"
        "raw_rank,processed_rank,raw_entropy,processed_entropy,kept_tokens,kept_mass,cut_by"
    )
    assert ",".join(ALTERNATIVE_COLUMNS) == (
        "sequence,position,place,token_id,token,token_bytes,raw_logit,raw_logprob,processed_logit,processed_logprob,raw_rank,"
        "processed_rank,cut_by,listed_as"
    )


def test_a_saved_report_loads_equal(report, tmp_path):
    back = Report.load(report.save(tmp_path / "new" / "folder"))
    pd.testing.assert_frame_equal(back.tokens, report.tokens)
    pd.testing.assert_frame_equal(back.alternatives, report.alternatives)
    pd.testing.assert_frame_equal(back.summary, report.summary)
    assert (back.run, back.texts, back.mode) == (json.loads(json.dumps(report.run)), report.texts, report.mode)


def test_a_report_read_from_files_keeps_its_mode(report, tmp_path):
    with pytest.raises(InputError, match="keeps the mode"):
        Report.load(report.save(tmp_path)).with_mode("raw_logits")


def test_a_folder_without_a_report(tmp_path):
    with pytest.raises(InputError, match=r"lacks tokens\.csv, alternatives\.csv, run\.json"):
        Report.load(tmp_path)


# ---- the spreadsheet-safe variant


def test_spreadsheet_safe_quotes_formulas_and_leaves_numbers(hostile, tmp_path):
    write_csv(hostile, tmp_path / "plain.csv")
    write_csv(hostile, tmp_path / "safe.csv", spreadsheet_safe=True)
    plain, safe = (pd.read_csv(tmp_path / name, keep_default_na=False, dtype=str) for name in ("plain.csv", "safe.csv"))
    for column in (*FLOATS, *WHOLES):
        if column in plain:
            assert safe[column].tolist() == plain[column].tolist()
    for before, after in zip(plain["token"], safe["token"]):
        assert after == ("'" + before if before[:1] in ("=", "+", "-", "@", "\t", "\r") and before else before)


# ---- JSON


def test_json_is_strict(report):
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    whole = json.loads(report.to_json(), parse_constant=refuse)
    assert len(whole["tokens"]) == len(report.tokens)
    assert whole["texts"] == list(report.texts)


def test_json_has_null_for_missing_and_for_cut(report):
    rows = json.loads(report.to_json())["tokens"]
    assert rows[0]["raw_logprob"] is None and rows[0]["raw_rank"] is None and rows[0]["cut_by"] == ""
    cut = [row for row in rows if row["cut_by"]]
    assert cut and all(row["processed_logprob"] is None and row["processed_rank"] is None for row in cut)


def test_json_of_values_that_are_not_numbers():
    rows = ScoredRows.unscored([1, 2], 1)
    for name in ("raw_logit", "raw_logprob"):
        getattr(rows, name)[1] = -INF
    assert json.loads(made_up(rows).to_json())["tokens"][1]["raw_logprob"] is None


# ---- the run record


def test_the_record_repeats_the_run(report, tiny_llama):
    run = json.loads(json.dumps(report.run))
    again = tiny_llama.inspect(
        run["prompt_ids"], completion=run["completion_ids"], params=SamplingParams(**run["params"]), mode=run["mode"], top_n=run["top_n"],
        token_ids=run["token_ids"], continuations=len(run["continuations"]), max_new_tokens=run["max_new_tokens"], seed=run["seed"],
        prompt_processing=run["prompt_processing"],
    )  # fmt: skip
    floats = [c for c in TOKEN_COLUMNS if c in FLOATS]
    np.testing.assert_allclose(again.tokens[floats].to_numpy(), report.tokens[floats].to_numpy(), atol=1e-5)
    assert again.tokens["token_id"].tolist() == report.tokens["token_id"].tolist()


def test_the_record_names_model_versions_and_pipeline(report):
    run = report.run
    assert run["model"]["name"] and run["dtype"] == "float32" and run["device"] == "cpu" and run["kernel_path"] in ("torch", "numba")
    assert {"logit_inspector", "python", "torch", "transformers"} <= set(run["versions"])
    assert run["pipeline"] == ["min_tokens", "temperature", "top_k"]
    assert run["mode"] == "raw_logprobs" and run["prompt_processing"] == "as_sampled"


# ---- text


def test_the_tokens_of_each_sequence_spell_its_text(report):
    for number, text in enumerate(report.texts):
        part = report.tokens[report.tokens["sequence"] == number]
        data = bytes.fromhex("".join(part["token_bytes"]))
        assert data.decode("utf-8", "backslashreplace") == text


def test_start_and_end_are_offsets_into_the_text(report):
    rows = report.tokens[report.tokens["sequence"] == 0]
    for _, row in rows.iterrows():
        data = bytes.fromhex(row["token_bytes"])
        assert data in report.text[row["start"] : row["end"]].encode()


def test_the_chosen_token_is_the_one_of_its_id(report):
    """Never the first alternative: the id, its text and its value belong together."""
    for _, row in report.tokens.iterrows():
        listed = report.alternatives.query("sequence == @row.sequence and position == @row.position and token_id == @row.token_id")
        if pd.isna(row["score"]):
            assert listed.empty
        else:
            assert listed["raw_logprob"].tolist() == [row["raw_logprob"]]
            assert listed["token"].tolist() == [row["token"]]
            assert "own" in listed["listed_as"].iloc[0]


def test_an_own_score_is_never_above_the_best(report):
    best = report.alternatives.groupby(["sequence", "position"])["raw_logprob"].max()
    for _, row in report.tokens[report.tokens["score"].notna()].iterrows():
        assert row["raw_logprob"] <= best[row["sequence"], row["position"]]


# ---- the summary


def made_up(rows, mode=Mode.RAW_LOGPROBS, boundary=None):
    ids = tuple(rows.token_id.tolist())
    vocabulary = tiny_models.inspector(tiny_models.llama(), tiny_models.byte_level_tokenizer()).loaded.vocabulary
    pieces = tuple(vocabulary.bytes_of(i) for i in ids)
    text = TokenizedText("", ids, pieces, (0,) * len(ids), (0,) * len(ids), len(ids) if boundary is None else boundary)
    run = {"mode": mode.value, "top_n": 0, "token_ids": [], "notes": []}
    return build_report([ScoredSequence("", text, 0, rows)], vocabulary, run)


def table_of(logprobs, ranks=None, data="61", cut=None):
    T = len(logprobs)
    return pd.DataFrame({
        "sequence": 0, "source": "prompt", "raw_logprob": np.array(logprobs, dtype=np.float32),
        "raw_rank": pd.array(ranks or [1] * T, dtype="Int64"), "token_bytes": [data] * T, "cut_by": cut or [""] * T,
    })  # fmt: skip


def test_a_missing_score_counts_in_no_mean():
    row = summarise(table_of([np.nan, 0.0, -2.0])).iloc[0]
    assert (row["tokens"], row["scored"]) == (3, 2)
    assert (row["total_logprob"], row["mean_logprob"]) == (-2.0, -1.0)
    assert row["perplexity"] == pytest.approx(2.718, abs=1e-3)


def test_twelve_nats_over_six_tokens():
    row = summarise(table_of([-2.0] * 6)).iloc[0]
    assert row["perplexity"] == pytest.approx(7.389, abs=1e-3)
    assert row["bits_per_byte"] == pytest.approx(12 / math.log(2) / 6)


def test_bits_per_byte_counts_utf8_bytes():
    row = summarise(table_of([np.nan, -math.log(2), -3 * math.log(2)], data="e6b0b4")).iloc[0]
    assert row["bits_per_byte"] == pytest.approx(4 / 6)


def test_nothing_scored_is_missing_not_zero():
    row = summarise(table_of([np.nan])).iloc[0]
    assert row["scored"] == 0
    assert row[["total_logprob", "mean_logprob", "perplexity", "bits_per_byte", "mean_rank", "top_1"]].isna().all()


def test_an_impossible_token_makes_the_perplexity_infinite():
    row = summarise(table_of([-1.0, -INF])).iloc[0]
    assert row["perplexity"] == INF and row["total_logprob"] == -INF


def test_a_huge_loss_does_not_overflow():
    assert summarise(table_of([-1000.0])).iloc[0]["perplexity"] == INF


def test_shares_of_ranks_and_cut_tokens():
    row = summarise(table_of([-1.0] * 4, ranks=[1, 10, 11, 101], cut=["", "top_k", "top_p", ""])).iloc[0]
    assert row[["top_1", "top_10", "top_100"]].tolist() == [0.25, 0.5, 0.75]
    assert row["mean_rank"] == pytest.approx(30.75)
    assert row["cut"] == 2


def test_prompt_completion_and_continuations_are_summed_apart(report):
    summary = report.summary
    assert summary[["sequence", "source"]].to_numpy().tolist() == [
        [0, "prompt"],
        [0, "completion"],
        [1, "continuation"],
        [2, "continuation"],
    ]
    for _, row in summary.iterrows():
        part = report.tokens[(report.tokens["sequence"] == row["sequence"]) & (report.tokens["source"] == row["source"])]
        assert row["total_logprob"] == pytest.approx(part["raw_logprob"].sum(), rel=1e-6)
        assert row["scored"] == part["raw_logprob"].notna().sum()


def test_the_summary_is_of_raw_likelihoods_whatever_the_mode(report):
    for mode in LogprobsMode:
        pd.testing.assert_frame_equal(report.with_mode(mode).summary, report.summary)
