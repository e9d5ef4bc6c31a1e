"""Files of a result, made in a folder of its own that nobody can guess."""

import importlib.util
import secrets
import zipfile
from pathlib import Path

import gradio as gr
from gradio.utils import get_upload_folder

from inspector.page.session import Result
from inspector.page.standalone import standalone_html

HAS_PARQUET = importlib.util.find_spec("pyarrow") is not None

# name -> what the button says
FILES = {
    "tokens.csv": "tokens.csv",
    "alternatives.csv": "alternatives.csv",
    "run.json": "run.json",
    "report.json": "report.json",
    "report.zip": "all as zip",
    "spreadsheet.zip": "CSV for spreadsheets",
    "report.html": "HTML report",
    "tokens.parquet": "tokens.parquet",
}
CSV_FILES = ("tokens.csv", "alternatives.csv", "run.json")


def download_buttons() -> list[gr.DownloadButton]:
    """One a file of FILES, in its order; they wait until the files are made."""
    return [
        gr.DownloadButton(
            label,
            interactive=False,
            size="sm",
            visible=HAS_PARQUET or not name.endswith(".parquet"),
            elem_id="download-" + name.replace(".", "-"),
            elem_classes="li-download",
        )
        for name, label in FILES.items()
    ]


def make_files(result: Result) -> list[str | None]:
    """Paths in FILES' order, nothing for Parquet where no library writes it. The folder is Gradio's own for files, so its
    clearing of old ones reaches these."""
    report = result.report
    folder = Path(get_upload_folder()) / secrets.token_hex(20)
    report.save(folder)
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8", newline="\n")
    _zip(folder, folder / "report.zip", (*CSV_FILES, "report.json"))
    safe = report.save(folder / "spreadsheet", spreadsheet_safe=True)
    _zip(safe, folder / "spreadsheet.zip", CSV_FILES)
    (folder / "report.html").write_text(standalone_html(result), encoding="utf-8", newline="\n")
    if HAS_PARQUET:
        report.tokens.to_parquet(folder / "tokens.parquet", index=False)
    return [str(folder / name) if (folder / name).is_file() else None for name in FILES]


def _zip(folder: Path, path: Path, names: tuple[str, ...]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.write(folder / name, name)
