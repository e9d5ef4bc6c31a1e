"""Scored rows to tables, files and back. The column names are the public contract; see docs/files.md."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from inspector.errors import InputError
from inspector.modes import LogprobsMode
from inspector.processors import PROCESSOR_NAMES
from inspector.scoring import ScoredRows
from inspector.tokens import TokenizedText, Vocabulary

FLOATS = ("score", "raw_logit", "raw_logprob", "processed_logit", "processed_logprob", "raw_entropy", "processed_entropy", "kept_mass")
WHOLES = ("sequence", "position", "place", "token_id", "start", "end", "raw_rank", "processed_rank", "kept_tokens")
TOKEN_COLUMNS = (
    "sequence", "source", "position", "token_id", "token", "token_bytes", "start", "end", "score", "raw_logit", "raw_logprob",
    "processed_logit", "processed_logprob", "raw_rank", "processed_rank", "raw_entropy", "processed_entropy", "kept_tokens",
    "kept_mass", "cut_by",
)  # fmt: skip
ALTERNATIVE_COLUMNS = (
    "sequence", "position", "place", "token_id", "token", "token_bytes", "raw_logit", "raw_logprob", "processed_logit",
    "processed_logprob", "raw_rank", "processed_rank", "cut_by", "listed_as",
)  # fmt: skip
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
NULLABLE = ("raw_rank", "processed_rank", "kept_tokens")
# by the sum of 1 for top, 2 for own, 4 for requested
_LISTED_AS = np.array(["", "top", "own", "top+own", "requested", "top+requested", "own+requested", "top+own+requested"], dtype=object)
_CUT_NAMES = np.array(["", *PROCESSOR_NAMES], dtype=object)


@dataclass(frozen=True)
class ScoredSequence:
    """One scored sequence of a report: 0 is the given text, 1…n the continuations. first: position of its first token."""

    text: str
    tokenized: TokenizedText
    first: int
    rows: ScoredRows


@dataclass(frozen=True)
class Report:
    """What an inspection found.

    tokens, alternatives: DataFrames with TOKEN_COLUMNS and ALTERNATIVE_COLUMNS; missing is NaN or <NA>, cut is -inf.
    texts: the given text, then each continuation's. summary: one row a sequence and source. run: all that is needed to
    repeat the run. notes: what a reader of the scores should know.
    """

    tokens: pd.DataFrame
    alternatives: pd.DataFrame
    texts: tuple[str, ...]
    summary: pd.DataFrame
    run: dict[str, Any]
    sequences: tuple[ScoredSequence, ...] = ()
    vocabulary: Vocabulary | None = None

    @property
    def text(self) -> str:
        """The given text: prompt and completion."""
        return self.texts[0]

    @property
    def mode(self) -> LogprobsMode:
        return LogprobsMode(self.run["mode"])

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.run["notes"])

    def with_mode(self, mode: LogprobsMode | str) -> "Report":
        """The same result read in another mode; nothing is run. Raises InputError for a report read from files."""
        if self.vocabulary is None:
            raise InputError("a report read from files keeps the mode that it was saved in; inspect the text again for another")
        return build_report(self.sequences, self.vocabulary, {**self.run, "mode": LogprobsMode.parse(mode).value})

    def save(self, folder: str | Path, *, spreadsheet_safe: bool = False) -> Path:
        """Write tokens.csv, alternatives.csv and run.json into `folder`, which is made if need be."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(self.tokens, folder / "tokens.csv", spreadsheet_safe=spreadsheet_safe)
        write_csv(self.alternatives, folder / "alternatives.csv", spreadsheet_safe=spreadsheet_safe)
        run = json.dumps(self.run, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / "run.json").write_text(run + "\n", encoding="utf-8", newline="\n")
        return folder

    def to_json(self) -> str:
        """The whole report as valid JSON: missing and cut values are null, a cut one names its processor in `cut_by`."""
        tables = {"tokens": self.tokens, "alternatives": self.alternatives, "summary": self.summary}
        records = {name: [_plain(row) for row in table.to_dict("records")] for name, table in tables.items()}
        return json.dumps({"run": self.run, "texts": list(self.texts), **records}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def load(cls, folder: str | Path) -> "Report":
        """Read back what `save` wrote (without the spreadsheet-safe marks). Raises InputError for a folder without it."""
        folder = Path(folder)
        missing = [n for n in ("tokens.csv", "alternatives.csv", "run.json") if not (folder / n).is_file()]
        if missing:
            raise InputError(f"{folder} is no saved report: it lacks {', '.join(missing)}")
        try:
            run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{folder / 'run.json'} is not valid JSON: {error}") from error
        tokens = read_csv(folder / "tokens.csv")
        return cls(tokens, read_csv(folder / "alternatives.csv"), tuple(run["texts"]), summarise(tokens), run)


def build_report(sequences: Sequence[ScoredSequence], vocabulary: Vocabulary, run: dict[str, Any]) -> Report:
    """Scored sequences as a report in the mode that `run` names."""
    mode = LogprobsMode(run["mode"])
    tokens = pd.concat([_token_table(n, s, vocabulary, mode) for n, s in enumerate(sequences)], ignore_index=True)
    alternatives = pd.concat([_alternative_table(n, s, vocabulary, run, mode) for n, s in enumerate(sequences)], ignore_index=True)
    texts = tuple(s.text for s in sequences)
    return Report(tokens, alternatives, texts, summarise(tokens), {**run, "texts": list(texts)}, tuple(sequences), vocabulary)


def summarise(tokens: pd.DataFrame) -> pd.DataFrame:
    """One row a sequence and source. Likelihoods are raw ones; a row without a score counts in no mean.

    Columns: sequence, source, tokens, scored, total_logprob (nats), mean_logprob, perplexity, bits_per_byte, mean_rank,
    top_1, top_10, top_100 (shares of the scored tokens), cut (tokens the sampler would not have drawn).
    """
    rows = []
    for (sequence, source), part in tokens.groupby(["sequence", "source"], sort=False):
        scored = part[part["raw_logprob"].notna()]
        logprobs = scored["raw_logprob"].to_numpy(np.float64)
        ranks = scored["raw_rank"].to_numpy(np.float64)
        size = sum(len(b) // 2 for b in scored["token_bytes"])
        some = len(scored) > 0
        rows.append({
            "sequence": sequence, "source": source, "tokens": len(part), "scored": len(scored),
            "total_logprob": logprobs.sum() if some else math.nan,
            "mean_logprob": logprobs.mean() if some else math.nan,
            "perplexity": _exp(-logprobs.mean()) if some else math.nan,
            "bits_per_byte": -logprobs.sum() / math.log(2) / size if size else math.nan,
            "mean_rank": ranks.mean() if some else math.nan,
            **{f"top_{n}": (ranks <= n).mean() if some else math.nan for n in (1, 10, 100)},
            "cut": int((scored["cut_by"] != "").sum()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def write_csv(table: pd.DataFrame, path: str | Path, *, spreadsheet_safe: bool = False) -> None:
    """UTF-8 CSV after RFC 4180 (CRLF, so that a lone carriage return in a cell is quoted): missing empty, cut -inf.

    spreadsheet_safe: a text cell that a spreadsheet would take for a formula gets a leading apostrophe.
    """
    if spreadsheet_safe:
        texts = [c for c in table.columns if c not in (*FLOATS, *WHOLES)]
        table = table.assign(**{c: table[c].map(lambda s: "'" + s if s.startswith(FORMULA_STARTS) else s) for c in texts})
    table.to_csv(path, index=False, encoding="utf-8", lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL)


def read_csv(path: str | Path) -> pd.DataFrame:
    """A table that `write_csv` wrote, with its column types."""
    header = pd.read_csv(path, nrows=0).columns
    numeric = {c: [""] for c in header if c in (*FLOATS, *WHOLES)}
    table = pd.read_csv(path, keep_default_na=False, na_values=numeric, dtype={c: str for c in header if c not in numeric})
    return _typed({c: table[c].fillna(-1) if c in NULLABLE else table[c] for c in table})


def _token_table(number: int, sequence: ScoredSequence, vocabulary: Vocabulary, mode: LogprobsMode) -> pd.DataFrame:
    rows, text = sequence.rows, sequence.tokenized
    columns = {name: getattr(rows, name).numpy() for name in TOKEN_COLUMNS if hasattr(rows, name)}
    columns |= {
        "sequence": np.full(len(rows), number),
        "source": ["continuation" if number else "prompt" if t < text.boundary else "completion" for t in range(len(rows))],
        "position": np.arange(len(rows)) + sequence.first,
        **_texts(rows.token_id.numpy(), vocabulary),
        "start": text.starts,
        "end": text.ends,
        "score": columns[mode.column],
        "cut_by": _CUT_NAMES[columns["cut_by"]],
    }
    return _typed({name: columns[name] for name in TOKEN_COLUMNS})


def _alternative_table(
    number: int, sequence: ScoredSequence, vocabulary: Vocabulary, run: dict[str, Any], mode: LogprobsMode
) -> pd.DataFrame:
    """The n best of each row in the chosen mode, then requested ids and the row's own where they are not among them."""
    rows = sequence.rows
    ids = rows.candidate_ids.numpy()
    raw = rows.candidate_raw_logit.numpy()
    processed = rows.candidate_processed_logit.numpy()
    value = processed if mode.is_processed else raw
    row, slot = np.nonzero(ids >= 0)
    # cut tokens come after the survivors, best raw value first; equal values by lower id
    order = np.lexsort((ids[row, slot], -raw[row, slot], -value[row, slot], row))
    row, slot = row[order], slot[order]
    place = np.arange(len(row)) - np.searchsorted(row, row, side="left") + 1
    own = ids[row, slot] == rows.token_id.numpy()[row]
    top = place <= run["top_n"]
    requested = np.isin(ids[row, slot], run["token_ids"])
    listed = top | own | requested
    row, slot, own, top, requested = (a[listed] for a in (row, slot, own, top, requested))
    place = np.arange(len(row)) - np.searchsorted(row, row, side="left") + 1
    chosen = ids[row, slot]
    table = {
        "sequence": np.full(len(row), number),
        "position": row + sequence.first,
        "place": place,
        "token_id": chosen,
        **_texts(chosen, vocabulary),
        **{n: getattr(rows, f"candidate_{n}").numpy()[row, slot] for n in FLOATS[1:5]},
        "raw_rank": rows.candidate_raw_rank.numpy()[row, slot],
        "processed_rank": rows.candidate_processed_rank.numpy()[row, slot],
        "cut_by": _CUT_NAMES[rows.candidate_cut_by.numpy()[row, slot]],
        "listed_as": _LISTED_AS[top + 2 * own + 4 * requested],
    }
    return _typed({name: table[name] for name in ALTERNATIVE_COLUMNS})


def _texts(ids: np.ndarray, vocabulary: Vocabulary) -> dict[str, np.ndarray]:
    """The text columns of token ids; each id is looked up once, for there are many more rows than ids."""
    distinct, places = np.unique(ids, return_inverse=True)
    tokens = [vocabulary.text_of(i) for i in distinct.tolist()]
    token_bytes = [vocabulary.bytes_of(i).hex() for i in distinct.tolist()]
    return {"token": np.array(tokens, dtype=object)[places], "token_bytes": np.array(token_bytes, dtype=object)[places]}


def _typed(columns: Mapping[str, Any]) -> pd.DataFrame:
    """float32 for scores, nullable integers for ranks and counts (−1 is missing), int64 for whole numbers, object for text."""
    typed = {}
    for name, values in columns.items():
        if name in FLOATS:
            typed[name] = pd.Series(values, dtype="float32")
        elif name in NULLABLE:
            whole = np.asarray(values)
            typed[name] = pd.Series(pd.arrays.IntegerArray(whole.astype(np.int64), whole < 0))
        elif name in WHOLES:
            typed[name] = pd.Series(values, dtype="int64")
        else:
            typed[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(typed)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON values: null for missing and for infinite."""
    plain = {}
    for name, value in row.items():
        if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
            plain[name] = None
        else:
            plain[name] = value.item() if hasattr(value, "item") else value
    return plain
