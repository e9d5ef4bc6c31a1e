"""The pinned token, the mode, branches, the history, the table, the form's presets and messages."""

import numpy as np
import pytest
from driving import PLAIN, choose, heatmap_text, inspect, table_rows

from inspector import SamplingParams
from inspector.page.table import COLUMNS

pytestmark = [pytest.mark.browser, pytest.mark.real]

POSITION, RAW_LOGPROB, PROCESSED_LOGPROB = (COLUMNS.index(name) for name in ("position", "raw_logprob", "processed_logprob"))


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


def test_presets_fill_the_fields(page):
    page.get_by_role("button", name="Focused").click()
    page.wait_for_selector("#sampler-message b:has-text('top_k')")
    assert [page.input_value(f"#{name} input[type=number]") for name in ("temperature", "top_k", "top_p")] == ["0.3", "40", "0.9"]
    page.get_by_role("button", name="Greedy").click()
    page.wait_for_selector("#sampler-message:has-text('Greedy')")


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


def _cell(page, row: int, column: int) -> str:
    return page.locator(f"#tokens .virtual-row >> nth={row}").locator("[role=gridcell]").nth(column).inner_text().strip()


def _shown(value: float) -> str:
    return "" if np.isnan(value) else "−∞" if np.isinf(value) else f"{value:.4f}".replace("-", "−")
