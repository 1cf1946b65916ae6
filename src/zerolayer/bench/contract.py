"""A synthetic contract as a PDF, the same bytes every time, and 19 questions with the pages they need."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zerolayer.bench.contract_clauses import filler
from zerolayer.bench.contract_facts import FACTS, Fact
from zerolayer.bench.contract_schedules import ROWS_A_PAGE, Schedule, make_schedules
from zerolayer.bench.contract_topics import TOPICS
from zerolayer.errors import UsageError

if TYPE_CHECKING:
    from reportlab.pdfgen.canvas import Canvas

LEAST_PAGES = 60
"""Below this the articles that hold facts would not find room."""

_TITLE = "Integrated Facilities and Equipment Services Agreement"
_SCHEDULE_PAGES = 12
_FONT, _BOLD, _SIZE, _LEADING = "Times-Roman", "Times-Bold", 11.5, 23
_WIDTH, _HEIGHT, _MARGIN = 595, 842, 68  # A4, points
_LINES_A_PAGE = 30

_PARTIES = (
    "This Agreement is made on 12 January 2024 between Northmoor Regional Health Trust, a public body"
    " whose seat is at 4 Kingsway, Northmoor (the “Customer”), and Calder & Finch Engineering "
    "Limited, a company registered under No. NF-4471823, whose registered office is at 18 Foundry "
    "Lane, Calderton (the “Supplier”). Each is called a “Party”.",
    "Whereas the Customer operates hospitals, clinics and laboratories and wishes to obtain services "
    "for its buildings and equipment from a single source; and whereas the Supplier has declared in "
    "its tender of 3 October 2023 that it has the staff, the workshops and the means to provide them;"
    " the Parties have agreed as follows.",
)
_DEFINITIONS = (
    (
        "Acceptance Test",
        "a test described in Article 10 that an item of Equipment must pass before it is taken over",
    ),
    (
        "Availability Failure",
        "a period of more than ninety minutes during which Equipment cannot be used as intended",
    ),
    ("Business Day", "a day other than a Saturday, a Sunday or a public holiday in Northmoor"),
    ("Category A Equipment", "Equipment without which operations or intensive care must stop"),
    ("Change", "an alteration of the Services agreed under the Article on Change Control"),
    ("Charges", "all sums payable by the Customer for the Services"),
    ("Contract Period", "the time from the Commencement Date to the Expiry Date and any Extension Period"),
    ("Contract Year", "twelve months beginning on the Commencement Date or on one of its anniversaries"),
    ("Critical Spare", "a part whose failure puts Category A Equipment out of use"),
    ("Equipment", "plant, instruments and furniture supplied or maintained under this Agreement"),
    ("Good Industry Practice", "the care that an experienced contractor in hospitals would exercise"),
    ("Joint Board", "the committee of both Parties set up under the Article on Governance Meetings"),
    ("Service Credit", "a reduction of the Charges for a failure to reach a Service Level"),
    ("Site", "each of the places listed in the Schedule of Sites"),
)


@dataclass(frozen=True, slots=True)
class ContractQuestion:
    """A follow-up question; `pages` are 1-based, two where the clause refers to a schedule for its answer."""

    question: str
    answer: str
    pages: tuple[int, ...]
    clause: str
    lay: bool


@dataclass(frozen=True, slots=True)
class ContractKey:
    """What is known about a written contract."""

    pages: int
    questions: tuple[ContractQuestion, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    bold: bool = False
    fact: Fact | None = None
    clause: str = ""


class _Paper:
    """Lines on pages; remembers on which page and in which clause each fact stands."""

    def __init__(self) -> None:
        self.pages: list[list[_Line]] = [[]]

    def add(self, lines: list[_Line]) -> None:
        for line in lines:
            if len(self.pages[-1]) == _LINES_A_PAGE:
                self.pages.append([])
            self.pages[-1].append(line)

    def break_page(self) -> None:
        self.pages.append([])

    @property
    def used(self) -> int:
        """Lines used, full pages counted whole."""
        return (len(self.pages) - 1) * _LINES_A_PAGE + len(self.pages[-1])

    def room_on_page(self) -> int:
        return _LINES_A_PAGE - len(self.pages[-1])


def write_contract(path: Path, pages: int = 127, seed: int = 0) -> ContractKey:
    """Write the contract to `path` and return its key. Equal arguments give equal bytes.

    Raises UsageError for fewer than LEAST_PAGES pages.
    """
    if pages < LEAST_PAGES:
        raise UsageError(
            f"a contract of {pages} pages cannot hold its 19 facts; ask for at least {LEAST_PAGES} pages"
        )
    rng = random.Random(seed)
    schedules = make_schedules(_SCHEDULE_PAGES, rng)
    numbers = {schedule.title: number for number, schedule in enumerate(schedules, start=1)}
    paper = _Paper()
    _front(paper)
    _articles(paper, pages - _SCHEDULE_PAGES, numbers, rng)
    for number, schedule in enumerate(schedules, start=1):
        _schedule(paper, number, schedule)
    _draw(path, paper.pages)
    return ContractKey(pages=len(paper.pages), questions=tuple(_questions(paper.pages)))


def _wrap(text: str, clause: str = "", fact: Fact | None = None, *, bold: bool = False) -> list[_Line]:
    from reportlab.lib.utils import simpleSplit

    lines = simpleSplit(text, _BOLD if bold else _FONT, _SIZE, _WIDTH - 2 * _MARGIN)
    return [_Line(line, bold, fact, clause) for line in lines]


def _front(paper: _Paper) -> None:
    paper.add([_Line(_TITLE.upper(), bold=True), _Line("")])
    for index, text in enumerate(_PARTIES):
        paper.add([*_wrap(text, fact=FACTS[0] if index == 0 else None), _Line("")])
    paper.add([_Line("In this Agreement the following words have the meanings given here:"), _Line("")])
    for term, meaning in _DEFINITIONS:
        paper.add([*_wrap(f"“{term}” means {meaning}."), _Line("")])


def _articles(paper: _Paper, last_page: int, schedules: dict[str, int], rng: random.Random) -> None:
    """Articles from the current line to the end of `last_page`, each with an equal share of the lines."""
    start, end = paper.used, last_page * _LINES_A_PAGE
    for number, topic in enumerate(TOPICS, start=1):
        limit = start + (end - start) * number // len(TOPICS)
        if paper.room_on_page() < 4:
            paper.break_page()
        paper.add([_Line(f"Article {number}. {topic.title}", bold=True), _Line("")])
        facts = [fact for fact in FACTS if fact.article == topic.title]
        others = filler(topic, rng, len(TOPICS), len(schedules), rng.choice(TOPICS[3:]))
        clauses: list[tuple[str, str, Fact | None]] = [(heading, text, None) for heading, text in others]
        clauses.insert(1, ("Special rule", topic.detail, None))
        for fact in facts:
            text = fact.text.format(s=schedules.get(fact.schedule, ""))
            clauses.insert(1 + rng.randrange(2), (fact.heading, text, fact))
        for count, (heading, text, clause_fact) in enumerate(clauses, start=1):
            label = f"{number}.{count}"
            lines = [*_wrap(f"{label} {heading}. {text}", label, clause_fact), _Line("")]
            if clause_fact is not None and len(lines) > paper.room_on_page():
                paper.break_page()  # a fact stays on one page, so that its page is one
            needed = count <= 2 + len(facts)
            if not needed and paper.used + len(lines) > limit:
                break
            paper.add(lines)


def _schedule(paper: _Paper, number: int, schedule: Schedule) -> None:
    label = f"Schedule {number}"
    for start in range(0, len(schedule.rows), ROWS_A_PAGE):
        paper.break_page()
        title = f"{label}. {schedule.title}" if start == 0 else f"{label}. {schedule.title} (continued)"
        paper.add([_Line(title, bold=True), _Line(""), _Line(" | ".join(schedule.columns), bold=True)])
        for row in schedule.rows[start : start + ROWS_A_PAGE]:
            fact = next((fact for fact in FACTS if fact.row == row), None)
            paper.add(_wrap(" | ".join(row), label, fact))


def _draw(path: Path, pages: list[list[_Line]]) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=(_WIDTH, _HEIGHT), invariant=1, pageCompression=1)
    canvas.setTitle(_TITLE)
    for number, lines in enumerate(pages, start=1):
        _draw_page(canvas, number, len(pages), lines)
        canvas.showPage()
    canvas.save()


def _draw_page(canvas: Canvas, number: int, total: int, lines: list[_Line]) -> None:
    canvas.setFont(_FONT, 8)
    canvas.drawString(_MARGIN, _HEIGHT - 40, _TITLE)
    y = _HEIGHT - 68.0
    for line in lines:
        canvas.setFont(_BOLD if line.bold else _FONT, _SIZE)
        canvas.drawString(_MARGIN, y, line.text)
        y -= _LEADING if line.text else _LEADING / 2
    canvas.setFont(_FONT, 8)
    canvas.drawCentredString(_WIDTH / 2, 34, f"Page {number} of {total}")


def _questions(pages: list[list[_Line]]) -> Iterator[ContractQuestion]:
    """Question by question, with the pages on which the drawn lines of its fact stand."""
    for fact in FACTS:
        places = [(n, line.clause) for n, lines in enumerate(pages, 1) for line in lines if line.fact is fact]
        numbers = tuple(sorted({number for number, _ in places}))
        yield ContractQuestion(fact.question, fact.answer, numbers, places[0][1], fact.lay)
