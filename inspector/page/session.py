"""What one visitor's page holds: the results made so far, which one is shown, which token is pinned."""

from dataclasses import dataclass, field, replace

from inspector.report import Report, ScoredSequence

MOST = 12  # results kept; the oldest goes when another is made


@dataclass(frozen=True)
class Result:
    """A report with a number that stays, a name that can change, and the result it came from, 0 for none. is_live: scored
    again under parameters that were moved, and again with each move."""

    number: int
    name: str
    report: Report
    parent: int = 0
    is_live: bool = False


@dataclass
class CancelFlag:
    """Set by the Cancel button of a session, read by its inspection at each step."""

    asked: bool = False


@dataclass(frozen=True)
class Drawn:
    """What the page shows: the scores of a result and of the one beside it, their modes, and the list of results."""

    scores: tuple[ScoredSequence, ...]
    other: tuple[ScoredSequence, ...]
    modes: tuple[str, str]
    choices: list[tuple[str, int]]

    def has_same_scores(self, before: "Drawn | None") -> bool:
        return before is not None and before.scores is self.scores

    def is_same(self, before: "Drawn | None") -> bool:
        return self.has_same_scores(before) and before.other is self.other and (before.modes, before.choices) == (self.modes, self.choices)


@dataclass
class Session:
    """Gradio keeps one in each visitor's state; nobody else sees it. shown, other: numbers of results, 0 for none."""

    results: list[Result] = field(default_factory=list)
    made: int = 0
    shown: int = 0
    other: int = 0
    other_mode: str = ""  # how the other is read; empty: as the shown one
    pinned: tuple[int, int] | None = None  # sequence and position
    drawn: Drawn | None = None  # what the page shows
    wants_files: bool = False  # whether the download tab is open: files of a long text take seconds to write

    @property
    def current(self) -> Result | None:
        return self.find(self.shown)

    def find(self, number: int) -> Result | None:
        return next((r for r in self.results if r.number == number), None)

    def add(self, report: Report, name: str = "", parent: int = 0) -> None:
        """A new result, which is shown from now on."""
        before = self.current
        self._append(name or _name(report), report, parent)
        self._show(self.made, before)

    def vary(self, number: int, report: Report) -> None:
        """A result's tokens under other parameters. The result stays as it is: its scores go to a live variant below it,
        which is shown where the result was. Nothing comes of it where the result was removed meanwhile."""
        before, result = self.current, self.find(number)
        if result is None:
            return
        variant = result if result.is_live else next((r for r in self.results if r.is_live and r.parent == number), None)
        if variant is None:
            self._append(_live_name(report), report, number, is_live=True)
            variant = self.results[-1]
        name = _live_name(report) if variant.name == _live_name(variant.report) else variant.name
        varied = replace(variant, report=report, name=name)
        self.results = [varied if r is variant else r for r in self.results]
        if self.shown == number:
            self._show(variant.number, before)

    def show(self, number: int) -> None:
        self._show(number, self.current)

    def _append(self, name: str, report: Report, parent: int, is_live: bool = False) -> None:
        """The oldest goes where there are too many, but not the one that the new one came from."""
        self.made += 1
        if len(self.results) >= MOST:
            oldest = next(r for r in self.results if r.number != parent)
            self.results = [r for r in self.results if r is not oldest]
        self.results = [*self.results, Result(self.made, name, report, parent, is_live)]

    def _show(self, number: int, before: Result | None) -> None:
        """A pin stays where the result shown before has the same tokens (heatmap.js does the same)."""
        self.shown = number
        if not before or not self.current or not _has_same_tokens(before.report, self.current.report):
            self.pinned = None
        if self.other == number or not self.find(self.other):
            self.other, self.other_mode = 0, ""

    def rename(self, name: str) -> None:
        if name.strip():
            self.results = [replace(r, name=name.strip()[:60]) if r.number == self.shown else r for r in self.results]

    def remove(self) -> None:
        """The shown result goes; the newest of the others is shown."""
        before = self.current
        self.results = [r for r in self.results if r.number != self.shown]
        self._show(self.results[-1].number if self.results else 0, before)

    def title(self, result: Result) -> str:
        """Number and name, and the model where the session has results of several."""
        models = {(r.report.run["model"]["name"], r.report.run["dtype"]) for r in self.results}
        of = f" · {result.report.run['model']['name']}, {result.report.run['dtype']}" if len(models) > 1 else ""
        return f"{result.number}. {result.name}{of}"

    def choices(self) -> list[tuple[str, int]]:
        """Names for a list, a branch below the result it came from."""
        rows: list[tuple[str, int]] = []
        known = {r.number for r in self.results}

        def walk(parent: int, depth: int) -> None:
            for r in self.results:
                if (r.parent if r.parent in known else 0) == parent:
                    rows.append((" " * 3 * depth + ("↳ " if depth else "") + self.title(r), r.number))
                    walk(r.number, depth + 1)

        walk(0, 0)
        return rows


def _name(report: Report) -> str:
    words = " ".join(report.text.split())
    steps = ", ".join(report.run["pipeline"])
    return (words[:24] + "…" if len(words) > 25 else words) + (f" ({steps})" if steps else "")


def _live_name(report: Report) -> str:
    return f"live ({', '.join(report.run['pipeline']) or 'neutral'})"


def _has_same_tokens(one: Report, two: Report) -> bool:
    columns = ["sequence", "position", "token_id"]
    return one.tokens[columns].equals(two.tokens[columns])
