"""Side by side, comparing, history, live parameters, branches, share links, the standalone report."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from driving import choose, download, heatmap_text, hover, inspect, table_rows, token_count

from inspector import SamplingParams
from inspector.page.table import COLUMNS
from inspector.report import Report, read_csv

pytestmark = [pytest.mark.browser, pytest.mark.real]

PLAIN = "The capital of France is Paris. Its river is the Seine."
SHOW = "#heatmap [aria-label='Show']"
COLOUR = "#heatmap [aria-label='Colour by']"


def test_raw_beside_processed_with_linked_hover(page, embedded):
    page.fill("#top_p input", "0.8")
    inspect(page, PLAIN)
    page.select_option(SHOW, "sides")
    cut = (embedded.inspect(PLAIN, params=SamplingParams(top_p=0.8)).tokens["cut_by"] != "").tolist()
    left, right = (page.locator(f"#heatmap [data-pane='{k}'] [data-i]") for k in (0, 1))
    assert left.count() == right.count() == len(cut)
    states = right.evaluate_all("e => e.map(x => x.dataset.state === 'cut')")
    assert states == cut
    assert "cut" not in left.evaluate_all("e => e.map(x => x.dataset.state)")
    left.nth(4).hover()
    assert page.locator("#heatmap .li-linked").get_attribute("id") == right.nth(4).get_attribute("id")


def test_prompt_beside_the_continuations(page):
    page.fill("#continuations input", "2")
    page.fill("#max_new_tokens input", "5")
    inspect(page, PLAIN)
    page.select_option(SHOW, "beside")
    boxes = [page.locator("#heatmap .li-section").nth(k).bounding_box() for k in range(3)]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] == boxes[2]["x"]
    assert boxes[0]["y"] == boxes[1]["y"] < boxes[2]["y"]
    assert heatmap_text(page, 0) == PLAIN
    hover(page, "#heatmap .li-section >> nth=2 >> .li-token >> nth=1")
    assert page.locator("body > .li-card").is_visible()
    page.fill("#continuations input", "0")
    inspect(page, "No continuation.")
    assert page.locator(SHOW).input_value() == "one"


def test_two_results_compared(page, embedded):
    inspect(page, PLAIN)
    page.fill("#temperature input", "0.5")
    page.locator("#mode").get_by_label("processed logprobs").check(force=True)
    inspect(page)
    choose(page, "#compare-with", "1. ")
    page.wait_for_selector("#comparison h3")
    this = embedded.inspect(PLAIN, params=SamplingParams(temperature=0.5)).tokens["processed_logprob"]
    other = embedded.inspect(PLAIN).tokens["processed_logprob"]
    said = page.locator("#comparison dd:not(.li-card-note)")
    shown = said.nth(1).inner_text()
    assert float(shown.replace("−", "-")) == pytest.approx((other - this).mean(), abs=1e-3)
    assert said.nth(0).inner_text() == f"{len(this)} of {len(this)}"
    page.select_option(COLOUR, "other")
    assert page.locator("#heatmap [data-pane='0'] [data-i='3']").get_attribute("data-state") == "two-sided"


def test_two_results_that_do_not_differ(page):
    inspect(page, PLAIN)
    page.fill("#temperature input[type=number]", "0.5")
    inspect(page)
    choose(page, "#compare-with", "1. ")
    page.wait_for_selector("#comparison:has-text('every score is the same in this mode')")


def test_a_result_compared_with_another_read_in_another_mode(page, embedded):
    inspect(page, PLAIN)
    page.fill("#top_p input[type=number]", "0.6")
    inspect(page)
    choose(page, "#compare-with", "1. ")
    page.wait_for_selector("#comparison h3")
    page.locator("#mode").get_by_label("processed logprobs").check(force=True)
    page.wait_for_selector("#comparison:has-text('other − this')")
    choose(page, "#other-mode", "raw logits")
    page.wait_for_selector("#comparison:has-text('raw logits − processed logprobs')")
    this = embedded.inspect(PLAIN, params=SamplingParams(top_p=0.6)).tokens
    difference = (embedded.inspect(PLAIN).tokens["raw_logit"] - this["processed_logprob"])[np.isfinite(this["processed_logprob"])]
    shown = page.locator("#comparison dd:not(.li-card-note)").nth(1).inner_text()
    assert float(shown.replace("−", "-").replace("+", "")) == pytest.approx(difference.mean(), abs=1e-3)
    assert f"over the {len(difference)} scored in both" in page.inner_text("#comparison")
    page.select_option(COLOUR, "other")
    states = page.locator("#heatmap [data-pane='0'] [data-i]").evaluate_all("e => e.map(x => x.dataset.state)")
    cut = (this["cut_by"] != "").tolist()
    assert states == ["unscored" if i == 0 else "cut" if by else "two-sided" for i, by in enumerate(cut)]


def test_no_difference_known_is_not_a_difference_of_zero(page):
    inspect(page, "The capital of France is Paris.")
    inspect(page, "The capital of Spain is Madrid.")
    choose(page, "#compare-with", "1. ")
    page.wait_for_selector("#comparison h3")
    page.select_option(COLOUR, "other")
    states = dict(page.locator("#heatmap [data-pane='0'] [data-i]").evaluate_all("e => e.map(x => [x.innerText, x.dataset.state])"))
    assert (states[" capital"], states[" Spain"], states[" Madrid"]) == ("two-sided", "unscored", "unscored")
    assert "no counterpart, cut there, or not scored" in page.inner_text("#heatmap .li-legend-place")


def test_a_file_is_of_the_result_that_is_shown(page, tmp_path):
    inspect(page, PLAIN)
    download(page, "download-tokens-csv", tmp_path / "first.csv")
    inspect(page, "Once upon a time there was a fox. " * 120)
    with page.expect_download() as started:  # at once: the file of the first result must not be had any more
        page.click("#download-tokens-csv")
    started.value.save_as(tmp_path / "second.csv")
    assert len(pd.read_csv(tmp_path / "second.csv")) == token_count(page)


def test_a_bar_of_a_plot_marks_its_tokens(page, embedded):
    inspect(page, PLAIN)
    ranks = embedded.inspect(PLAIN).tokens["raw_rank"]
    page.wait_for_selector("#plot-4 .points path")
    for plot, expected in (("#plot-4", (ranks == 1).sum()), ("#plot-3", None)):
        bar = page.locator(f"{plot} .points path").nth(0)
        bar.scroll_into_view_if_needed()
        bar.hover(force=True)
        page.wait_for_function(f"document.querySelector('{plot} .js-plotly-plot')._hoverdata")
        held = page.evaluate(f"document.querySelector('{plot} .js-plotly-plot')._hoverdata[0].pointNumbers?.length ?? -1")
        bar.click(force=True)
        page.wait_for_selector("#heatmap .li-marked")
        assert page.locator("#heatmap .li-marked").count() == (held if expected is None else expected)


def test_history_names_shows_and_removes(page):
    inspect(page, "First text.")
    inspect(page, "Second text.")
    page.fill("#result-name textarea, #result-name input", "mine")
    page.press("#result-name textarea, #result-name input", "Enter")
    page.wait_for_function("document.querySelector('#history input').value.includes('mine')")
    choose(page, "#history", "1. ")
    page.wait_for_function("document.querySelector('#heatmap .li-text').textContent === 'First text.'")
    page.click("#remove-result")
    page.wait_for_function("document.querySelector('#heatmap .li-text').textContent === 'Second text.'")
    page.click("#remove-result")
    page.wait_for_selector("#empty .li-empty")


def test_live_parameters_score_again_and_keep_the_pin(page, embedded):
    inspect(page, PLAIN)
    page.click("#heatmap [data-i='5']")
    table_rows(page)
    page.locator("#temperature input[type=range]").evaluate("e => { e.value = 0.5; e.dispatchEvent(new Event('input')); }")
    table = embedded.inspect(PLAIN, params=SamplingParams(temperature=0.5)).alternatives
    expected = table[table["position"] == 5]["processed_logprob"].iloc[0]
    page.wait_for_function(
        "x => Math.abs(Number(document.querySelector('#alternatives tbody tr').cells[8].innerText.replace('−', '-')) - x) < 2e-3",
        arg=float(expected),
    )
    assert page.input_value("#temperature input[type=number]") == "0.5"
    assert page.locator("#heatmap .li-pinned").get_attribute("data-i") == "5"
    assert "live (temperature)" in page.input_value("#history input")
    choose(page, "#history", "1. ")  # as it was, and the pin stays on the same text
    page.wait_for_function(
        "x => Math.abs(Number(document.querySelector('#alternatives tbody tr').cells[8].innerText.replace('−', '-')) - x) < 2e-3",
        arg=float(table[table["position"] == 5]["raw_logprob"].iloc[0]),
    )
    assert page.locator("#heatmap .li-pinned").get_attribute("data-i") == "5"


def test_only_what_the_user_moves_is_scored_live(page):
    inspect(page, PLAIN)
    page.get_by_role("button", name="Repetition penalty").click()  # an example: the next text, not this one
    page.wait_for_selector("#sampler-message b:has-text('repetition_penalty')")
    page.wait_for_timeout(1500)
    assert page.input_value("#history input").startswith("1. ")
    page.click("#reset")
    page.wait_for_selector("#sampler-message:has-text('All neutral')")
    page.wait_for_timeout(1500)
    assert page.input_value("#history input").startswith("1. ")  # what it was scored with
    page.get_by_role("button", name="Focused").click()
    page.wait_for_function("document.querySelector('#history input').value.includes('live (temperature, top_k, top_p)')")
    page.uncheck("#live-switch input")
    page.fill("#temperature input[type=number]", "1.7")
    page.wait_for_timeout(1500)
    assert "live (temperature, top_k, top_p)" in page.input_value("#history input")


def test_live_parameters_keep_the_continuations(page, embedded):
    page.fill("#continuations input", "1")
    page.fill("#max_new_tokens input", "6")
    page.fill("#seed textarea", "7")
    inspect(page, PLAIN)
    drawn = heatmap_text(page, 1)
    page.fill("#top_k input[type=number]", "1")
    page.wait_for_selector("#heatmap [data-state='mark'], #heatmap .li-was-cut")
    assert heatmap_text(page, 1) == drawn
    page.get_by_role("tab", name="Notes").click()
    page.wait_for_selector("#notes:has-text('drawn with other parameters')")


def test_pinned_token_shows_the_pipeline_step_by_step(page, embedded):
    params = {"temperature": 0.7, "top_k": 3, "repetition_penalty": 1.3}
    for name, value in params.items():
        page.fill(f"#{name} input[type=number]", str(value))
    inspect(page, PLAIN)
    page.click("#heatmap [data-i='8']")
    page.wait_for_selector("#steps")
    rows = page.locator("#steps tbody tr").evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.innerText))")
    report = embedded.inspect(PLAIN, params=SamplingParams(**params))
    expected = embedded.pipeline_steps(report, 0, 8)
    expected = expected[: int((expected["logit"] == -np.inf).argmax()) + 1 if (expected["logit"] == -np.inf).any() else None]
    assert [row[0] for row in rows] == expected["step"].tolist()
    shown = [float(row[1].replace("−∞", "-inf").replace("−", "-")) for row in rows]
    assert shown == pytest.approx(expected["logit"].tolist(), abs=1e-3)
    page.keyboard.press("Escape")
    page.focus("#heatmap .li-text")
    page.keyboard.press("Escape")
    page.wait_for_selector("#steps", state="detached")


def test_changing_the_mode_keeps_the_elements(page):
    inspect(page, PLAIN)
    page.evaluate("document.querySelector('#heatmap [data-i=\"3\"]').kept = true")
    page.locator("#mode").get_by_label("raw logits").check(force=True)
    page.wait_for_selector("#heatmap .li-legend-title:has-text('raw logit')")
    assert page.evaluate("document.querySelector('#heatmap [data-i=\"3\"]').kept")


def test_branch_takes_the_alternative_and_samples_on(page, embedded):
    page.fill("#max_new_tokens input", "4")
    page.fill("#seed textarea", "5")
    inspect(page, PLAIN)
    page.click("#heatmap [data-i='5']")
    rows = table_rows(page)
    best = next(row for row in rows if "own" not in row[-1])
    page.wait_for_selector("#branch:not([disabled])")
    page.click("#branch")
    page.wait_for_function("document.querySelector('#history input').value.includes('↳')")
    page.wait_for_selector("#heatmap .li-section >> nth=1")
    ids = [*embedded.loaded.vocabulary.tokenizer(PLAIN)["input_ids"][:5], int(best[2])]
    expected = embedded.inspect(ids, continuations=1, max_new_tokens=4, seed=5)
    assert [heatmap_text(page, k) for k in range(2)] == list(expected.texts)


def test_share_link_restores_the_form(page, chromium, watched):
    page.fill("#prompt textarea", 'A "quoted" <text>\n🦉')
    page.fill("#top_k input", "40")
    page.fill("#seed textarea", "9007199254740993")
    page.locator("#mode").get_by_label("processed logits").check(force=True)
    page.click("#share button")
    page.click("#share-button")
    page.wait_for_function("document.querySelector('#share-link textarea, #share-link input').value.includes('#inspect=')")
    link = page.locator("#share-link textarea, #share-link input").input_value()
    other = chromium.new_context().new_page()
    other.goto(link)
    other.wait_for_function("document.querySelector('#prompt textarea')?.value")
    assert other.input_value("#prompt textarea") == 'A "quoted" <text>\n🦉'
    assert other.input_value("#top_k input[type=number]") == "40"
    assert other.input_value("#seed textarea") == "9007199254740993"
    assert other.locator("#mode").get_by_label("processed logits").is_checked()
    other.context.close()


def test_a_damaged_share_link_is_told(chromium, app_url):
    other = chromium.new_context().new_page()
    other.goto(app_url + "/#inspect=abcd")
    other.get_by_text("this share link is damaged or cut short").first.wait_for()
    other.context.close()


def test_live_parameters_reach_the_result_that_was_shown_when_they_moved(page):
    inspect(page, "Short.")
    inspect(page, "Once upon a time there was a fox. " * 120)
    page.wait_for_timeout(3000)
    page.fill("#temperature input[type=number]", "1.4")
    page.wait_for_timeout(400)
    choose(page, "#history", "1. ")
    page.wait_for_function("document.querySelector('#heatmap .li-text').textContent === 'Short.'")
    page.wait_for_timeout(6000)
    assert heatmap_text(page) == "Short."


LONG = "Once upon a time there was a fox. " * 200


def test_a_result_removed_while_it_is_scored_live_stays_away(page):
    inspect(page, "Short.")
    inspect(page, LONG)
    page.wait_for_timeout(3000)
    page.fill("#top_p input[type=number]", "0.7")
    page.wait_for_timeout(300)
    page.click("#remove-result")
    page.wait_for_function("document.querySelector('#heatmap .li-text').textContent === 'Short.'")
    page.wait_for_timeout(6000)
    assert heatmap_text(page) == "Short."
    page.click("#history input")
    assert page.locator("ul [role=option]").all_inner_texts() == ["✓\n1. Short."]


def test_the_mode_changed_while_scores_come_live_shows_the_new_scores(page, embedded):
    inspect(page, LONG)
    page.wait_for_timeout(3000)
    page.fill("#top_p input[type=number]", "0.7")
    page.wait_for_timeout(300)
    page.locator("#mode").get_by_label("processed logprobs").check(force=True)
    expected = embedded.inspect(LONG, params=SamplingParams(top_p=0.7)).tokens
    cut = int((expected["cut_by"] != "").sum())
    page.wait_for_function("n => document.querySelectorAll('#heatmap [data-i][data-state=cut]').length === n", arg=cut)
    page.wait_for_timeout(6000)
    assert page.locator("#heatmap [data-i][data-state=cut]").count() == cut > 0
    assert page.inner_text("#heatmap .li-legend-title") == "processed logprob, nats"


def test_an_error_goes_when_the_form_is_mended(page):
    page.fill("#top_p input[type=number]", "1.5")
    page.fill("#prompt textarea", PLAIN)
    page.click("#inspect")
    page.wait_for_selector("#status [role=alert]:has-text('top_p')")
    assert page.get_by_text("top_p must be in").count() == 2  # at the fields and beside the results, and nowhere else
    page.click("#reset")
    page.wait_for_selector("#status [role=alert]", state="hidden")
    inspect(page)
    assert "Done" in page.inner_text("#status")


def test_the_look_is_remembered(page):
    page.click("#theme")
    look = page.evaluate("document.body.classList.contains('dark')")
    page.reload()
    page.wait_for_selector("#inspect")
    page.wait_for_function("look => document.body.classList.contains('dark') === look", arg=look)
    page.wait_for_timeout(500)
    page.click("#theme")
    assert page.evaluate("document.body.classList.contains('dark')") != look


def test_a_narrow_window_is_led_to_the_result(page):
    page.set_viewport_size({"width": 390, "height": 844})
    inspect(page, PLAIN)
    assert page.locator("#mode").evaluate("e => { const y = e.getBoundingClientRect().top; return y >= 0 && y < innerHeight / 2; }")


def test_the_table_of_tokens_says_what_the_python_api_says(page, embedded):
    page.fill("#top_k input[type=number]", "3")
    inspect(page, PLAIN)
    page.get_by_role("tab", name="Tokens").click()
    tokens = embedded.inspect(PLAIN, params=SamplingParams(top_k=3)).tokens
    assert [_cell(page, row, RAW_LOGPROB) for row in range(8)] == [_shown(x) for x in tokens["raw_logprob"][:8]]
    assert [_cell(page, row, PROCESSED_LOGPROB) for row in range(8)] == [_shown(x) for x in tokens["processed_logprob"][:8]]
    page.hover(f"#tokens [data-testid='header-{RAW_LOGPROB}']")
    page.click(f"#tokens [data-testid='header-{RAW_LOGPROB}'] .cell-menu-button")
    page.get_by_text("Sort ascending").click()
    page.wait_for_selector("#tokens .sort-indicator")
    least = tokens.sort_values("raw_logprob").iloc[0]
    assert [_cell(page, 0, c) for c in (POSITION, RAW_LOGPROB)] == [str(least["position"]), _shown(least["raw_logprob"])]
    page.fill("#tokens .search-input", "·Paris")
    page.wait_for_selector("#tokens .virtual-row >> nth=1", state="detached")
    found = tokens[tokens["token"] == " Paris"].iloc[0]
    assert [_cell(page, 0, c) for c in (POSITION, RAW_LOGPROB)] == [str(found["position"]), _shown(found["raw_logprob"])]


POSITION, RAW_LOGPROB, PROCESSED_LOGPROB = (COLUMNS.index(name) for name in ("position", "raw_logprob", "processed_logprob"))


def _cell(page, row: int, column: int) -> str:
    return page.locator(f"#tokens .virtual-row >> nth={row}").locator("[role=gridcell]").nth(column).inner_text().strip()


def _shown(value: float) -> str:
    return "" if np.isnan(value) else "−∞" if np.isinf(value) else f"{value:.4f}".replace("-", "−")


def test_presets_fill_the_fields(page):
    page.get_by_role("button", name="Focused").click()
    page.wait_for_selector("#sampler-message b:has-text('top_k')")
    assert [page.input_value(f"#{name} input[type=number]") for name in ("temperature", "top_k", "top_p")] == ["0.3", "40", "0.9"]
    page.get_by_role("button", name="Greedy").click()
    page.wait_for_selector("#sampler-message:has-text('Greedy')")


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


@pytest.mark.parametrize("kind", ["PNG", "SVG"])
def test_each_plot_can_be_saved(page, kind, tmp_path):
    inspect(page, PLAIN)
    page.wait_for_selector("#plot-4 .li-save button")
    for number in range(5):
        with page.expect_download() as started:
            page.locator(f"#plot-{number} .li-save button", has_text=kind).click()
        path = tmp_path / f"{number}"
        started.value.save_as(path)
        assert path.read_bytes().startswith(b"\x89PNG" if kind == "PNG" else b"<svg")
    assert started.value.suggested_filename == f"raw-rank.{kind.lower()}"


def test_plots_open_from_disk(page, chromium, tmp_path):
    inspect(page, "A <b>bold</b> claim</script> it is.")
    page.wait_for_selector("#plot-0 .li-save button")
    with page.expect_download() as started:
        page.locator("#plot-0 .li-save button", has_text="HTML").click()
    started.value.save_as(tmp_path / "plot.html")
    download(page, "download-plots-html", tmp_path / "plots.html")
    for name, plots in (("plot.html", 1), ("plots.html", 5)):
        context = chromium.new_context(offline=True)
        saved, errors = context.new_page(), []
        saved.on("pageerror", lambda e, errors=errors: errors.append(str(e)))
        saved.goto((tmp_path / name).as_uri())
        saved.wait_for_selector(f".js-plotly-plot .main-svg >> nth={plots - 1}")
        assert saved.locator(".js-plotly-plot").count() == plots
        assert saved.locator(".js-plotly-plot").first.locator(".points path").count() == token_count(page) - 1  # the first is not scored
        assert errors == []
        context.close()


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


def test_point_in_a_plot_leads_to_its_token(page):
    inspect(page, PLAIN)
    page.wait_for_selector("#plot-0 .points path")
    page.locator("#plot-0 .points path").nth(2).hover(force=True)
    page.wait_for_function("document.querySelector('#plot-0 .js-plotly-plot')._hoverdata")
    page.locator("#plot-0 .points path").nth(2).click(force=True)
    page.wait_for_selector("#pinned h3")
    assert page.locator("#heatmap .li-pinned").count() == 1
