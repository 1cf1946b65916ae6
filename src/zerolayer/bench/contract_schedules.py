"""The schedules of the synthetic contract: tables of many rows, some of which complete a clause."""

from __future__ import annotations

import random
from typing import NamedTuple

from zerolayer.bench.contract_facts import FACTS

ROWS_A_PAGE = 24


class Schedule(NamedTuple):
    """A titled table; `rows` are cells of text and fill whole pages."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_FIRST = (
    "Anders",
    "Beatrix",
    "Callum",
    "Dagny",
    "Edmund",
    "Freya",
    "Gareth",
    "Helga",
    "Isidor",
    "Jorunn",
    "Konrad",
    "Liv",
    "Magnus",
    "Nora",
    "Oskar",
    "Petra",
    "Quentin",
    "Runa",
    "Stellan",
    "Thea",
)
_LAST = (
    "Aldridge",
    "Bergman",
    "Crowther",
    "Dahlberg",
    "Eastwood",
    "Falk",
    "Granger",
    "Hedlund",
    "Ivarsson",
    "Jennings",
    "Kettle",
    "Lockwood",
    "Moberg",
    "Nilsen",
    "Oakley",
    "Prentice",
    "Rask",
    "Stroud",
    "Thorne",
    "Ullman",
)
_PLACES = (
    "boiler house",
    "central sterile store",
    "theatre corridor",
    "imaging suite",
    "pharmacy annex",
    "laundry hall",
    "kitchen yard",
    "west wing plant room",
    "blood bank",
    "dialysis ward",
    "archive cellar",
    "roof chamber",
    "lecture theatre",
    "ambulance bay",
    "isolation ward",
    "mortuary",
    "car park lodge",
    "data hall",
)
_GOODS = (
    "pump seal kit",
    "valve actuator",
    "door gasket",
    "steam trap",
    "control relay",
    "bearing set",
    "fan belt",
    "filter cassette",
    "pressure sensor",
    "drive coupling",
    "heating element",
    "circuit board",
    "hose assembly",
    "lamp module",
    "battery pack",
    "fuse carrier",
    "thermostat",
    "float switch",
)
_WORKS = (
    "fitter, normal hours",
    "fitter, night hours",
    "electrician",
    "refrigeration specialist",
    "welder",
    "draughtsman",
    "crane with driver",
    "scaffold, per bay",
    "thermal survey",
    "duct cleaning",
)


def make_schedules(pages: int, rng: random.Random) -> list[Schedule]:
    """Six schedules that fill `pages` pages; a fact's row stands near the middle of its schedule."""
    shares = [pages // 6 + (index < pages % 6) for index in range(6)]
    kinds = (
        ("Service Levels", ("Item", "Target", "Consequence", "Amount"), _service_level),
        ("Price List", ("Code", "Description", "Unit", "Price"), _price),
        ("Sites", ("Code", "Place", "Area", "Access"), _site),
        ("Financial Limits", ("Heading", "Basis", "Amount"), _limit),
        ("Standards", ("Reference", "Subject", "Edition"), _standard),
        ("Contacts", ("Function", "Name", "Telephone"), _contact),
    )
    schedules: list[Schedule] = []
    for (title, columns, make), share in zip(kinds, shares, strict=True):
        rows = [make(number, rng) for number in range(1, share * ROWS_A_PAGE + 1)]
        for fact in FACTS:
            if fact.schedule == title:
                rows[len(rows) // 2 + 3] = fact.row
        schedules.append(Schedule(title, columns, tuple(rows)))
    return schedules


def _service_level(number: int, rng: random.Random) -> tuple[str, ...]:
    return (
        f"SL-{number:03d} {rng.choice(_GOODS)}, {rng.choice(_PLACES)}",
        f"{rng.randrange(900, 990) / 10} %",
        rng.choice(("Review", "Warning letter", "Improvement plan")),
        f"EUR {rng.randrange(10, 40) * 50 + 20:,} per event",
    )


def _price(number: int, rng: random.Random) -> tuple[str, ...]:
    item = rng.choice(_WORKS) if number % 3 == 0 else f"{rng.choice(_GOODS)} for the {rng.choice(_PLACES)}"
    return (
        f"P-{number:03d}",
        item,
        rng.choice(("each", "per hour", "per visit")),
        f"EUR {rng.randrange(11, 1300):,}.50",
    )


def _site(number: int, rng: random.Random) -> tuple[str, ...]:
    return (
        f"N{number:03d}",
        f"{rng.choice(_PLACES)}, level {rng.randint(-2, 7)}",
        f"{rng.randrange(14, 900)} square metres",
        rng.choice(("badge", "escort", "key from lodge", "open in daytime")),
    )


def _limit(number: int, rng: random.Random) -> tuple[str, ...]:
    basis = rng.choice(("per order", "per month", "per event", "per Contract Year"))
    return (
        f"FL-{number:03d} approval by the {rng.choice(_PLACES)} manager",
        basis,
        f"EUR {rng.randrange(2, 80) * 500:,}",
    )


def _standard(number: int, rng: random.Random) -> tuple[str, ...]:
    subject = f"{rng.choice(_GOODS)}s in a {rng.choice(_PLACES)}"
    return f"NS {rng.randrange(1000, 9999)}-{number}", subject, f"edition of {rng.randrange(2001, 2023)}"


def _contact(number: int, rng: random.Random) -> tuple[str, ...]:
    name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
    return f"Caretaker {number}, {rng.choice(_PLACES)}", name, f"+47 22 555 {rng.randrange(200, 9999):04d}"
