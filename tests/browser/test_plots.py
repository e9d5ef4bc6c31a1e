"""The plots: linked to the heatmap by click, saved each on its own."""

import pytest
from driving import PLAIN, download, inspect, token_count

pytestmark = [pytest.mark.browser, pytest.mark.real]


def test_point_in_a_plot_leads_to_its_token(page):
    inspect(page, PLAIN)
    page.wait_for_selector("#plot-0 .points path")
    page.locator("#plot-0 .points path").nth(2).hover(force=True)
    page.wait_for_function("document.querySelector('#plot-0 .js-plotly-plot')._hoverdata")
    page.locator("#plot-0 .points path").nth(2).click(force=True)
    page.wait_for_selector("#pinned h3")
    assert page.locator("#heatmap .li-pinned").count() == 1


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
