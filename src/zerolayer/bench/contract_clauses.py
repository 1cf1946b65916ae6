"""Legal prose for the synthetic contract: clause templates and what fills their slots."""

from __future__ import annotations

import random

from zerolayer.bench.contract_topics import Topic

# Numbers that no fact uses, so that no filler clause holds an answer.
_DAYS = (
    "five (5)",
    "eight (8)",
    "ten (10)",
    "twelve (12)",
    "fourteen (14)",
    "twenty (20)",
    "twenty-one (21)",
    "twenty-eight (28)",
    "thirty (30)",
    "thirty-five (35)",
    "sixty (60)",
    "ninety (90)",
)
_SITES = (
    "Northmoor General",
    "the Eastgate Clinic",
    "the Harbour Day Centre",
    "the Lindholm Laboratory",
    "the Ashby Rehabilitation Unit",
    "the Riverside Depot",
    "the Castle Street Offices",
    "the Fenwick Training Block",
)
_MONTHS = ("January", "April", "June", "September", "October", "November")
_FORMS = (
    "in the agreed form",
    "on the electronic form of the Customer",
    "in a single file",
    "in two originals",
    "in a format that can be searched",
    "on numbered sheets",
)
_MANNERS = (
    "with due skill and care",
    "in accordance with Good Industry Practice",
    "without disturbing clinical work",
    "in an orderly sequence",
    "in the light of the latest guidance",
    "at its own expense",
    "under the eye of a competent person",
    "in daylight where that is practicable",
)
_CAUSES = (
    "a change in the use of a building",
    "a new edition of a standard",
    "an instruction of a regulator",
    "a seasonal peak in demand",
    "the opening of a further ward",
    "a strike among carriers",
    "a recall by a manufacturer",
    "a finding of an inspector",
)
_EFFECTS = (
    "the programme is adjusted accordingly",
    "no additional sum becomes due",
    "the Joint Board is informed at its next meeting",
    "the extra effort is reported separately",
    "a temporary arrangement is put in place",
    "the matter is recorded as an open action",
)

TEMPLATES: tuple[tuple[str, str], ...] = (
    (
        "Principle",
        "The Supplier shall be responsible for {thing} at all Sites and shall go about {act} {manner}. It "
        "remains so responsible where a third party appointed by it takes part, and {effect}.",
    ),
    (
        "Responsible person",
        "The {role} of the Supplier answers for {thing}. If that person is absent for longer than "
        "{days} days, the Supplier shall put forward a deputy of "
        "equal standing, first at {site} and then elsewhere.",
    ),
    (
        "Record",
        "For every instance of {act} the Supplier shall draw up a "
        "{record} {form}. The {record} names the place, "
        "the hour and the persons present, and a copy reaches the {role} within {days} days.",
    ),
    (
        "Instructions",
        "The Customer may give reasonable instructions about {thing}. An instruction given orally, for "
        "example at {site}, is confirmed in writing within {days} "
        "days; until then the Supplier proceeds {manner}.",
    ),
    (
        "Risk",
        "The Parties regard {risk} as the principal hazard in "
        "connection with {thing}. The {role} shall review the "
        "precautions every {month} and after {cause}, and shall enter the outcome in the {record}.",
    ),
    (
        "Occurrence",
        "In the event of {risk} the Supplier shall make the place secure, inform the {role} by telephone, "
        "and submit a {record} {form}. Work at {site} resumes only when the {role} has released it.",
    ),
    (
        "Costs",
        "Unless clause {ref} provides otherwise, the cost of {act} is included in the Charges. Where {cause} "
        "causes expense above EUR {amount}, the Supplier may propose a Change, and {effect}.",
    ),
    (
        "Programme",
        "The programme for {act} is drawn up each {month} for the twelve months that follow. It takes "
        "account of clinical hours at {site} and of {other}, and it may be altered on {days} days' notice.",
    ),
    (
        "Standard",
        "In {act} the Supplier shall observe the standards listed in "
        "Schedule {schedule} as amended from time "
        "to time. Should {cause} make two of them conflict, the stricter applies and {effect}.",
    ),
    (
        "Inspection",
        "The Customer may attend {act} at {site} and may inspect each {record}. If it finds {risk}, the "
        "Supplier shall set out the cause and a remedy within {days} days.",
    ),
    (
        "Interfaces",
        "The Supplier shall coordinate {thing} with {other}, in particular under clause {ref}. Neither "
        "activity is to be delayed on the ground that the other is incomplete, and {effect}.",
    ),
    (
        "Materials",
        "Materials needed for {act} are new, of sound quality and fit for a hospital. The {role} keeps "
        "samples at {site} for {days} days, and a {record} accompanies each batch {form}.",
    ),
    (
        "Suspension",
        "The {role} may suspend {act} where there is reason to fear {risk}. Suspension at one place does "
        "not extend to others; if it lasts beyond {days} days, the Joint Board decides {manner}.",
    ),
    (
        "Exceptions",
        "This Article does not apply to {thing} procured by the Customer from others, nor to consequences of "
        "{cause}. The Supplier shall nevertheless assist {manner} where clause {ref} so requires.",
    ),
    (
        "Reporting",
        "A summary of {thing} for the preceding quarter is presented each {month}. It compares {site} with "
        "the other Sites, names every case of {risk}, and draws on the {record} for its figures.",
    ),
    (
        "Retention",
        "Each {record} is kept {form} until the second {month} after it was made and is then handed to the "
        "Customer. The {role} confirms that nothing was removed, and {effect}.",
    ),
    (
        "Equipment used",
        "Tools and vehicles used for {act} carry the name of the Supplier and a valid inspection mark. A "
        "tool borrowed at {site} is returned within {days} days and noted in the {record}.",
    ),
    (
        "Consultation",
        "Before it alters the arrangements for {thing}, the Supplier shall consult the {role} and the "
        "departments at {site}. Comments received within {days} days are answered one by one {form}.",
    ),
    (
        "Improvement",
        "The Supplier shall look for better ways of {act} and shall present at least one proposal each "
        "{month}. A proposal that saves more than EUR {amount} a year is tried first at {site} {manner}.",
    ),
    (
        "Competence",
        "Persons engaged in {act} hold the qualifications that the law demands and know the local rules of "
        "{site}. The {role} checks this {manner} and enters the date in the {record}.",
    ),
    (
        "Defective records",
        "A {record} that is incomplete or illegible counts as missing. The Supplier shall replace it "
        "within {days} days; where this cannot be done because of {cause}, {effect}.",
    ),
    (
        "Third parties",
        "Where {thing} also concern neighbours, landlords or other users of {site}, the Supplier shall "
        "seek their agreement {manner}. It informs the {role} if agreement is withheld, and {effect}.",
    ),
    (
        "Emergency",
        "If life or health is at stake the Supplier may depart from this Article in respect of {thing}, "
        "provided that the {role} is told at once and that a {record} follows within {days} days.",
    ),
    (
        "Stock",
        "Whatever is needed for {act} during {days} days is held ready at {site}. After {cause} the level is "
        "set anew by the {role}, who has regard to clause {ref} and to {other}.",
    ),
    (
        "Acceptance of records",
        "The {role} signs the {record} if it is in order and otherwise states reasons. Silence "
        "during {days} days counts as signature, save in a case of {risk}, when express consent is needed.",
    ),
    (
        "Order of precedence",
        "In the event of contradiction between this Article and Schedule {schedule}, this Article "
        "prevails as regards {thing}. The Parties shall remove the "
        "contradiction by the next {month}, and {effect}.",
    ),
    (
        "Working hours",
        "As a rule {act} takes place between seven and nineteen hours. At {site} other hours may be "
        "agreed with the {role}; an allowance of EUR {amount} covers the first {days} nights {manner}.",
    ),
    (
        "Communication",
        "Questions about {thing} are addressed to the {role}, who replies within {days} days {form}. "
        "Replies bind neither Party where they touch {other} or the subject of clause {ref}.",
    ),
    (
        "Local rules",
        "The house rules of {site} apply to {act} in addition to this Article. They are handed over "
        "{form}, and a rule introduced because of {cause} applies from the following {month}.",
    ),
    (
        "Review",
        "The Joint Board shall review {thing} at its {month} "
        "meeting. It considers each {record}, any {other_lower} "
        "that bear on it, and the likelihood of {risk}, and it may order a trial at {site}.",
    ),
)
"""(heading, text) of clauses that fit any article."""


def filler(
    topic: Topic, rng: random.Random, articles: int, schedules: int, other: Topic
) -> list[tuple[str, str]]:
    """The (heading, text) of all templates in a new order, filled for `topic`; texts differ in many slots."""
    clauses: list[tuple[str, str]] = []
    for heading, template in rng.sample(TEMPLATES, len(TEMPLATES)):
        text = template.format(
            thing=topic.thing,
            act=topic.act,
            record=topic.record,
            role=topic.role,
            risk=topic.risk,
            other=other.thing,
            other_lower=f"matters of {other.title.lower()}",
            days=rng.choice(_DAYS),
            site=rng.choice(_SITES),
            month=rng.choice(_MONTHS),
            form=rng.choice(_FORMS),
            manner=rng.choice(_MANNERS),
            cause=rng.choice(_CAUSES),
            effect=rng.choice(_EFFECTS),
            amount=f"{rng.randrange(3, 90) * 250 + 130:,}",
            schedule=rng.randint(1, schedules),
            ref=f"{rng.randint(1, articles)}.{rng.randint(1, 5)}",
        )
        clauses.append((heading, text))
    return clauses
