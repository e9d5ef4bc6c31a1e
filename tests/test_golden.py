"""Every recorded score of the real engine, on the embedded model in float32, within 2e-4.

`engine_generation.json`: the recorded output ids are scored as a completion of the recorded prompt ids.
`engine_prompt_processed.json`: what the engine gives when each prefix of a prompt is a prompt of its own.
"""

import json
import os
from pathlib import Path

import pandas as pd
import pytest
import torch

from inspector import LogprobsMode, SamplingParams

pytestmark = pytest.mark.real

FOLDER = Path(os.environ.get("LOGIT_INSPECTOR_GOLDEN") or Path(__file__).resolve().parents[2] / "shared" / "golden")
TOLERANCE = 2e-4
LISTED = 8  # the engine was asked for its top 8


def _read(name):
    path = FOLDER / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"records": []}


GENERATION = _read("engine_generation.json")
PROMPT = _read("engine_prompt_processed.json")
RECORDS = GENERATION["records"]


def _name(record):
    return f"{record['prompt']}-{record['params']}-{record['mode']}"


def _params(fields):
    fields = dict(fields)
    fields["logit_bias"] = {int(i): b for i, b in fields.get("logit_bias", {}).items()}
    return SamplingParams(**fields)


@pytest.fixture(scope="module")
def inspected(embedded):
    """(prompt, params, output ids, mode) -> report; run once, read in all four modes."""
    reports = {}

    def report(prompt, params, output_ids, mode):
        key = (prompt, params, tuple(output_ids))
        if key not in reports:
            reports[key] = embedded.inspect(
                GENERATION["prompt_token_ids"][prompt],
                completion=output_ids,
                params=_params(GENERATION["params"][params]),
                top_n=LISTED,
                token_ids=sorted(_drawn_after_prefixes(prompt, params)),
            )
        return reports[key].with_mode(mode)

    return report


@pytest.fixture(scope="module")
def plain_logits(embedded):
    """(prompt, output ids) -> [T, V] logits of one plain forward pass, to tell near ties from errors."""
    known = {}

    def logits(prompt, output_ids):
        key = (prompt, tuple(output_ids))
        if key not in known:
            ids = torch.tensor([[*GENERATION["prompt_token_ids"][prompt], *output_ids]])
            with torch.inference_mode():
                known[key] = embedded.loaded.model(ids).logits[0]
        return known[key]

    return logits


def _drawn_after_prefixes(prompt, params):
    records = [r for r in PROMPT["records"] if (r["prompt"], r["params"]) == (prompt, params)]
    return {token_id for r in records for row in r["rows"] for token_id, _, _ in row["top"]}


def _near_ties(row, token_id, params):
    """How many other tokens the engine's rounding could put on the other side of this one."""
    width = 2 * TOLERANCE * max(1.0, GENERATION["params"][params]["temperature"])
    return int(((row - row[token_id]).abs() < width).sum()) - 1


def test_the_golden_records_are_there():
    if not RECORDS or not PROMPT["records"]:
        reason = f"no golden records in {FOLDER}; set LOGIT_INSPECTOR_GOLDEN to the folder that holds them"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    assert (len(RECORDS), len(PROMPT["records"])) == (432, 108)


@pytest.mark.parametrize("record", RECORDS, ids=_name)
def test_generation_record(record, inspected, plain_logits):
    """Top 8 and own token: the same ids in the same order, with the same scores and ranks; what the engine cut is cut."""
    mode = LogprobsMode(record["mode"])
    report = inspected(record["prompt"], record["params"], record["output_token_ids"], mode)
    logits = plain_logits(record["prompt"], record["output_token_ids"])
    rank = "processed_rank" if mode.is_processed else "raw_rank"
    listed = report.alternatives[report.alternatives["listed_as"].str.contains("top|own")]
    survivors = listed[listed[mode.column] > -float("inf")]
    boundary = len(GENERATION["prompt_token_ids"][record["prompt"]])
    for position, expected in enumerate(record["output"], boundary):
        ours = survivors[survivors["position"] == position]
        ids, scores, ranks = zip(*expected)
        assert ours["token_id"].tolist() == list(ids), position
        assert ours[mode.column].tolist() == pytest.approx(list(scores), abs=TOLERANCE, rel=0), position
        for token_id, our_rank, their_rank in zip(ids, ours[rank], ranks):
            slack = _near_ties(logits[position - 1], token_id, record["params"]) if their_rank > LISTED else 0
            assert abs(our_rank - their_rank) <= slack, (position, token_id)
        own = report.tokens.iloc[position]
        assert own["score"] == pytest.approx(scores[ids.index(own["token_id"])], abs=TOLERANCE, rel=0), position
        if mode.is_processed and len(expected) < LISTED:
            assert own["kept_tokens"] == len(expected), position
        elif mode.is_processed:
            assert own["kept_tokens"] >= LISTED, position


@pytest.mark.parametrize("record", [r for r in RECORDS if "prompt_scores" in r], ids=_name)
def test_raw_prompt_record(record, inspected, plain_logits):
    mode = LogprobsMode(record["mode"])
    report = inspected(record["prompt"], record["params"], record["output_token_ids"], mode)
    logits = plain_logits(record["prompt"], record["output_token_ids"])
    assert record["prompt_scores"][0] is None
    assert pd.isna(report.tokens["score"][0])
    for position, expected in enumerate(record["prompt_scores"][1:], 1):
        here = report.alternatives[report.alternatives["position"] == position].set_index("token_id")
        for token_id, score, rank in expected:
            assert here.loc[token_id, mode.column] == pytest.approx(score, abs=TOLERANCE, rel=0), position
            slack = _near_ties(logits[position - 1], token_id, record["params"]) if rank > LISTED else 0
            assert abs(here.loc[token_id, "raw_rank"] - rank) <= slack, (position, token_id)
        own = report.tokens.iloc[position]
        assert own["score"] == pytest.approx({i: s for i, s, _ in expected}[own["token_id"]], abs=TOLERANCE, rel=0), position


@pytest.mark.parametrize("record", PROMPT["records"], ids=_name)
def test_processed_prompt_record(record, inspected):
    mode = LogprobsMode(record["mode"])
    output_ids = next(r["output_token_ids"] for r in RECORDS if (r["prompt"], r["params"]) == (record["prompt"], record["params"]))
    report = inspected(record["prompt"], record["params"], output_ids, mode)
    assert [row["position"] for row in record["rows"]] == list(range(1, len(PROMPT["prompt_token_ids"][record["prompt"]])))
    for row in record["rows"]:
        own = report.tokens.iloc[row["position"]]
        expected = -float("inf") if row["score"] is None else row["score"]
        assert own["score"] == pytest.approx(expected, abs=TOLERANCE, rel=0), row["position"]
        assert (own["cut_by"] == "") == (row["score"] is not None), row["position"]
        here = report.alternatives[report.alternatives["position"] == row["position"]].set_index("token_id")
        for token_id, score, rank in row["top"]:
            assert here.loc[token_id, mode.column] == pytest.approx(score, abs=TOLERANCE, rel=0), row["position"]
            assert here.loc[token_id, "processed_rank"] == rank, row["position"]
