"""What one visitor's page holds: the results made so far, which one is shown, which token is pinned."""

from dataclasses import dataclass, field, replace

from inspector.report import Report, ScoredSequence

MOST = 12  # results kept; the oldest goes when another is made


@dataclass(frozen=True)
class Result:
    """A report with a number that stays, a name that can change, and the result it branched from, 0 for none."""

    number: int
    name: str
    report: Report
    parent: int = 0

    @property
    def title(self) -> str:
        return f"{self.number}. {self.name}"


@dataclass
class CancelFlag:
    """Set by the Cancel button of a session, read by its inspection at each step."""

    asked: bool = False


@dataclass
class Session:
    """Gradio keeps one in each visitor's state; nobody else sees it. shown, other: numbers of results, 0 for none."""

    results: list[Result] = field(default_factory=list)
    made: int = 0
    shown: int = 0
    other: int = 0
    pinned: tuple[int, int] | None = None  # sequence and position
    drawn: tuple[ScoredSequence, ...] | None = None  # what the page shows in some mode
    wants_files: bool = False  # whether the download tab is open: files of a long text take seconds to write

    @property
    def current(self) -> Result | None:
        return self.find(self.shown)

    def find(self, number: int) -> Result | None:
        return next((r for r in self.results if r.number == number), None)

    def add(self, report: Report, name: str = "", parent: int = 0) -> None:
        """A new result, which is shown from now on."""
        self.made += 1
        self.results = [*self.results, Result(self.made, name or _name(report), report, parent)][-MOST:]
        self.show(self.made)

    def replace(self, number: int, report: Report) -> None:
        """A result with other scores, if it is still there; a name that says the parameters goes with them."""
        self.results = [
            replace(r, report=report, name=_name(report) if r.name == _name(r.report) else r.name) if r.number == number else r
            for r in self.results
        ]

    def show(self, number: int) -> None:
        if number != self.shown:
            self.shown, self.pinned = number, None
        if self.other == number or not self.find(self.other):
            self.other = 0

    def rename(self, name: str) -> None:
        if name.strip():
            self.results = [replace(r, name=name.strip()[:60]) if r.number == self.shown else r for r in self.results]

    def remove(self) -> None:
        """The shown result goes; the newest of the others is shown."""
        self.results = [r for r in self.results if r.number != self.shown]
        self.show(self.results[-1].number if self.results else 0)

    def choices(self) -> list[tuple[str, int]]:
        """Names for a list, a branch below the result it came from."""
        rows: list[tuple[str, int]] = []
        known = {r.number for r in self.results}

        def walk(parent: int, depth: int) -> None:
            for r in self.results:
                if (r.parent if r.parent in known else 0) == parent:
                    rows.append((" " * 3 * depth + ("↳ " if depth else "") + r.title, r.number))
                    walk(r.number, depth + 1)

        walk(0, 0)
        return rows


def _name(report: Report) -> str:
    words = " ".join(report.text.split())
    steps = ", ".join(report.run["pipeline"])
    return (words[:24] + "…" if len(words) > 25 else words) + (f" ({steps})" if steps else "")
