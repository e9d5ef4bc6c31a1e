"""Files of a result, made in a folder of its own that nobody can guess."""

import json
import secrets
import zipfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

import gradio as gr
from gradio.utils import get_upload_folder

from inspector.page.plots import FIGURES
from inspector.page.session import Result
from inspector.page.standalone import standalone_html

GROUPS = (
    (
        "Tables",
        "one row a token, one row a listed alternative",
        ("tokens.csv", "alternatives.csv", "tokens.parquet", "alternatives.parquet"),
    ),
    ("For spreadsheets", "the CSV files, with no cell that a spreadsheet would run", ("spreadsheet.zip",)),
    ("Whole report", "loads again without loss; run.json says how it was made", ("report.zip", "report.json", "run.json")),
    ("To look at", "open from disk, without this server", ("report.html", "plots.html")),
    ("Session", "every result and branch, as a tree", ("session.json",)),
)
FILES = tuple(name for _, _, names in GROUPS for name in names)
CSV_FILES = ("tokens.csv", "alternatives.csv", "run.json")


def download_buttons() -> list[gr.DownloadButton]:
    """One a file of FILES, in its order; they wait until the files are made."""
    buttons = []
    for title, about, names in GROUPS:
        with gr.Row(elem_classes="li-downloads"):
            gr.HTML(f"<p class='li-files'><b>{title}</b> {about}</p>", apply_default_css=False)
            buttons += [_button(name) for name in names]
    return buttons


def _button(name: str) -> gr.DownloadButton:
    place = "download-" + name.replace(".", "-")
    return gr.DownloadButton(name, interactive=False, size="sm", elem_id=place, elem_classes="li-download")


def make_files(result: Result, results: Sequence[Result] = ()) -> list[str]:
    """Paths in FILES' order. results: the session's, for the file that holds them all. The folder is Gradio's own for
    files, so its clearing of old ones reaches these."""
    report = result.report
    folder = Path(get_upload_folder()) / secrets.token_hex(20)
    report.save(folder)
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8", newline="\n")
    _zip(folder, folder / "report.zip", (*CSV_FILES, "report.json"))
    safe = report.save(folder / "spreadsheet", spreadsheet_safe=True)
    _zip(safe, folder / "spreadsheet.zip", CSV_FILES)
    (folder / "report.html").write_text(standalone_html(result), encoding="utf-8", newline="\n")
    (folder / "plots.html").write_text(plots_html(result), encoding="utf-8", newline="\n")
    report.tokens.to_parquet(folder / "tokens.parquet", index=False)
    report.alternatives.to_parquet(folder / "alternatives.parquet", index=False)
    (folder / "session.json").write_text(session_json(results or [result]), encoding="utf-8", newline="\n")
    return [str(folder / name) for name in FILES]


def plots_html(result: Result) -> str:
    """Every plot in one page that opens from disk; Plotly's own script is inside."""
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=not k) for k, (make, _) in enumerate(FIGURES) for figure in [make(result.report)]
    ]
    head = f"<meta charset='utf-8'><title>{escape(result.name)} · Logit Inspector</title>"
    return f"<!doctype html>\n<html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def session_json(results: Sequence[Result]) -> str:
    """The results of a session as a tree: each with its parent's number (0 for none), how to repeat it, and its scores."""
    nodes, known = [], {result.number for result in results}
    for result in results:
        report = json.loads(result.report.to_json())
        del report["alternatives"]  # by far the largest part; each result's own files have it
        nodes.append({"number": result.number, "name": result.name, "parent": result.parent if result.parent in known else 0, **report})
    return json.dumps({"results": nodes}, ensure_ascii=False, allow_nan=False)


def _zip(folder: Path, path: Path, names: tuple[str, ...]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.write(folder / name, name)
