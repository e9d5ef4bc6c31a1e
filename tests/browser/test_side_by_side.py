"""Panes beside each other: raw and processed, prompt and continuations, two results and their difference."""

import numpy as np
import pytest
import tiny_models
from driving import PLAIN, choose, heatmap_text, hover, inspect
from served import served_app

from inspector import SamplingParams

pytestmark = [pytest.mark.browser, pytest.mark.real]

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


def test_a_token_of_the_other_result_pins_its_twin(page):
    inspect(page, PLAIN)
    inspect(page, "The capital of France is Lyon.")
    choose(page, "#compare-with", "1. ")
    page.wait_for_selector("#comparison h3")
    page.click("#heatmap [data-pane='1'] [data-i='3']")
    page.wait_for_selector("#pinned h3:has-text('Prompt, position 3: ·France')")
    assert page.locator("#heatmap .li-pinned").get_attribute("id") == "li-t3"
    page.click("#heatmap [data-pane='1'] [data-i='5']")  # Paris, which this result does not have
    page.wait_for_timeout(500)
    assert page.locator("#heatmap .li-pinned").get_attribute("id") == "li-t3"


def test_results_of_two_models(chromium, tmp_path):
    tiny_models.llama().save_pretrained(tmp_path / "tiny")
    tiny_models.byte_level_tokenizer().save_pretrained(tmp_path / "tiny")
    with served_app(tmp_path) as url:
        page = chromium.new_context().new_page()
        page.goto(url)
        page.wait_for_selector("#model-chip .li-chip:not(.li-wait)", timeout=60_000)
        page.wait_for_timeout(500)
        inspect(page, PLAIN)
        page.click("#model button >> nth=0")
        page.fill("#model-name input, #model-name textarea", str(tmp_path / "tiny"))
        page.click("#model-load")
        page.wait_for_selector("#model-status:has-text('Loaded')", timeout=60_000)
        page.fill("#top_k input[type=number]", "3")  # moved live: the result is the other model's
        page.wait_for_selector("#status [role=alert]:has-text('which is not the loaded model')")
        assert page.get_by_text("which is not the loaded model").count() == 1
        page.click("#reset")
        inspect(page)
        choose(page, "#compare-with", "1. ")
        page.wait_for_selector("#comparison h3:has-text('SmolLM2'):has-text('tiny')")
        page.select_option(COLOUR, "other")
        states = set(page.locator("#heatmap [data-pane='0'] [data-i]").evaluate_all("e => e.map(x => x.dataset.state)"))
        assert "unscored" in states  # bytes of the one have no counterpart among the words of the other
        page.context.close()
