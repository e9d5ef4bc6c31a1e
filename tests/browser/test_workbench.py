"""Side by side, comparing, history, live parameters, branches, share links, the standalone report."""

import pandas as pd
import pytest
from driving import download, heatmap_text, inspect, table_rows, token_count

from inspector import SamplingParams

pytestmark = [pytest.mark.browser, pytest.mark.real]

PLAIN = "The capital of France is Paris. Its river is the Seine."
SHOW = "#heatmap [aria-label='Show']"
COLOUR = "#heatmap [aria-label='Colour by']"


def choose(page, dropdown: str, text: str) -> None:
    page.click(f"{dropdown} input")
    page.locator("[role=option]", has_text=text).first.click()


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


def test_two_results_compared(page, embedded):
    inspect(page, PLAIN)
    page.fill("#temperature input", "0.5")
    page.locator("#mode").get_by_label("processed logprobs").check(force=True)
    inspect(page)
    choose(page, "#compare-with", "1. ")
    page.wait_for_selector("#comparison h3")
    this = embedded.inspect(PLAIN, params=SamplingParams(temperature=0.5)).tokens["processed_logprob"]
    other = embedded.inspect(PLAIN).tokens["processed_logprob"]
    shown = page.locator("#comparison dd").nth(1).inner_text()
    assert float(shown.replace("−", "-")) == pytest.approx((other - this).mean(), abs=1e-3)
    assert page.locator("#comparison dd").nth(0).inner_text() == f"{len(this)} of {len(this)}"
    page.select_option(COLOUR, "other")
    assert page.locator("#heatmap [data-pane='0'] [data-i='3']").get_attribute("data-state") == "two-sided"


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
    page.check("#live-switch input")
    page.locator("#temperature input[type=range]").evaluate("e => { e.value = 0.5; e.dispatchEvent(new Event('input')); }")
    table = embedded.inspect(PLAIN, params=SamplingParams(temperature=0.5)).alternatives
    expected = table[table["position"] == 5]["processed_logprob"].iloc[0]
    page.wait_for_function(
        "x => Math.abs(Number(document.querySelector('#alternatives tbody tr').cells[8].innerText.replace('−', '-')) - x) < 2e-3",
        arg=float(expected),
    )
    assert page.input_value("#temperature input[type=number]") == "0.5"
    assert page.locator("#heatmap .li-pinned").get_attribute("data-i") == "5"


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
    pytest.importorskip("pyarrow")
    inspect(page, PLAIN)
    download(page, "download-tokens-parquet", tmp_path / "tokens.parquet")
    got = pd.read_parquet(tmp_path / "tokens.parquet")
    pd.testing.assert_frame_equal(got, embedded.inspect(PLAIN).tokens, rtol=0, atol=1e-4, check_dtype=False)


def test_point_in_a_plot_leads_to_its_token(page):
    inspect(page, PLAIN)
    page.wait_for_selector("#plot-0 .points path")
    page.locator("#plot-0 .points path").nth(2).hover(force=True)
    page.wait_for_function("document.querySelector('#plot-0 .js-plotly-plot')._hoverdata")
    page.locator("#plot-0 .points path").nth(2).click(force=True)
    page.wait_for_selector("#pinned h3")
    assert page.locator("#heatmap .li-pinned").count() == 1
