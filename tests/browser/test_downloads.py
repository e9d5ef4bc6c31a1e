"""Every file of the page, opened and compared with the Python API."""

import json
import zipfile

import pandas as pd
import pytest
from driving import PLAIN, download, heatmap_text, inspect, table_rows, token_count

from inspector.report import Report, read_csv

pytestmark = [pytest.mark.browser, pytest.mark.real]


def test_a_file_is_of_the_result_that_is_shown(page, tmp_path):
    inspect(page, PLAIN)
    download(page, "download-tokens-csv", tmp_path / "first.csv")
    inspect(page, "Once upon a time there was a fox. " * 120)
    with page.expect_download() as started:  # at once: the file of the first result must not be had any more
        page.click("#download-tokens-csv")
    started.value.save_as(tmp_path / "second.csv")
    assert len(pd.read_csv(tmp_path / "second.csv")) == token_count(page)


def test_standalone_report_opens_from_disk(page, chromium, tmp_path):
    text = "<script>window.hit = 1</script> An owl 🦉.</textarea>"
    inspect(page, text)
    download(page, "download-report-html", tmp_path / "report.html")
    context = chromium.new_context(offline=True)
    saved, errors, outside = context.new_page(), [], []
    saved.on("pageerror", lambda e: errors.append(str(e)))
    saved.on("request", lambda r: outside.append(r.url) if not r.url.startswith("file:") else None)
    saved.goto((tmp_path / "report.html").as_uri())
    assert heatmap_text(saved) == text
    assert token_count(saved) == token_count(page)
    saved.hover("#heatmap [data-i='3']")
    assert saved.locator(".li-card").is_visible()
    assert (errors, outside, saved.evaluate("window.hit")) == ([], [], None)
    context.close()


def test_parquet_equals_the_python_api(page, embedded, tmp_path):
    inspect(page, PLAIN)
    download(page, "download-tokens-parquet", tmp_path / "tokens.parquet")
    got = pd.read_parquet(tmp_path / "tokens.parquet")
    pd.testing.assert_frame_equal(got, embedded.inspect(PLAIN).tokens, rtol=0, atol=1e-4, check_dtype=False)


def test_the_session_is_saved_as_a_tree(page, embedded, tmp_path):
    page.fill("#max_new_tokens input", "3")
    page.fill("#seed textarea", "5")
    inspect(page, PLAIN)
    page.click("#heatmap [data-i='5']")
    table_rows(page)
    page.wait_for_selector("#branch:not([disabled])")
    page.click("#branch")
    page.wait_for_function("document.querySelector('#history input').value.includes('↳')")
    download(page, "download-session-json", tmp_path / "session.json")
    nodes = json.loads((tmp_path / "session.json").read_text(encoding="utf-8"))["results"]
    assert [(n["number"], n["parent"]) for n in nodes] == [(1, 0), (2, 1)]
    again = embedded.inspect(nodes[1]["run"]["prompt_ids"], continuations=1, max_new_tokens=3, seed=nodes[1]["run"]["seed"])
    assert nodes[1]["texts"] == list(again.texts)


def test_every_download_equals_the_python_api(page, embedded, tmp_path):
    inspect(page, PLAIN)
    expected = embedded.inspect(PLAIN)
    for name in ("alternatives.csv", "run.json", "report.json", "report.zip", "spreadsheet.zip", "alternatives.parquet"):
        download(page, "download-" + name.replace(".", "-"), tmp_path / name)
    pd.testing.assert_frame_equal(read_csv(tmp_path / "alternatives.csv"), expected.alternatives, rtol=0, atol=1e-4)
    parquet = pd.read_parquet(tmp_path / "alternatives.parquet")
    pd.testing.assert_frame_equal(parquet, expected.alternatives, rtol=0, atol=1e-4, check_dtype=False)
    for name in ("report.zip", "spreadsheet.zip"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            archive.extractall(tmp_path / name[:-4])
    pd.testing.assert_frame_equal(Report.load(tmp_path / "report").tokens, expected.tokens, rtol=0, atol=1e-4)
    pd.testing.assert_frame_equal(Report.load(tmp_path / "spreadsheet").tokens, expected.tokens, rtol=0, atol=1e-4)
    whole = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [t["token_id"] for t in whole["tokens"]] == expected.tokens["token_id"].tolist()
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert {k: run[k] for k in ("params", "prompt_ids", "mode")} == {k: expected.run[k] for k in ("params", "prompt_ids", "mode")}
