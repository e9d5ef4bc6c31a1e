"""Parameters that are moved score the shown tokens again, beside the result."""

import pytest
from driving import PLAIN, choose, heatmap_text, inspect, table_rows

from inspector import SamplingParams

pytestmark = [pytest.mark.browser, pytest.mark.real]

LONG = "Once upon a time there was a fox. " * 200


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
