"""A result as one HTML file that opens from disk: the heatmap with its hover cards, the summary, the notes."""

from html import escape

from inspector.page.cards import notes_html, run_html, summary_html
from inspector.page.heatmap import SCRIPTS, TEMPLATE, payload
from inspector.page.look import ASSETS, script
from inspector.page.session import Result

# what Gradio's theme gives the page
VARIABLES = """
:root { --body-text-color: #1e293b; --body-text-color-subdued: #475569; --block-background-fill: #fff;
  --input-background-fill: #fff; --border-color-primary: #e2e8f0; --color-accent: #0f766e; --button-primary-background-fill: #0f766e;
  --font-mono: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
body.dark { --body-text-color: #f1f5f9; --body-text-color-subdued: #94a3b8; --block-background-fill: #0f172a;
  --input-background-fill: #1e293b; --border-color-primary: #334155; --color-accent: #14b8a6; background: #020617; }
body { margin: 0 auto; padding: 24px; max-width: 1200px; background: #f8fafc; color: var(--body-text-color); }
body, select { font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 12px; } #heatmap { margin: 16px 0; } pre { white-space: pre-wrap; }
"""


def standalone_html(result: Result) -> str:
    """Styles, scripts and data inside the file; nothing is fetched. The payload has no `<`, so it cannot end its script."""
    report = result.report
    style = "\n".join([VARIABLES, *((ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "heatmap.css"))])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(result.name)} · Logit Inspector</title><style>{style}</style></head><body>
<h1>{escape(result.name)}</h1>
{summary_html(report)}
<div id="heatmap">{TEMPLATE}</div>
{notes_html(report)}{run_html(report)}
<script type="application/json" id="payload">{payload(result)}</script>
<script>
if (matchMedia("(prefers-color-scheme: dark)").matches) document.body.classList.add("dark");
const page = [document.getElementById("heatmap"), () => {{}}, {{ value: document.getElementById("payload").textContent }}, () => {{}}];
((element, trigger, props, watch) => {{
{script(*SCRIPTS)}
}})(...page);
</script></body></html>
"""
