"""The 19 facts of the synthetic contract that its follow-up questions ask for."""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """A clause with an answer in it, or with a reference to the schedule whose `row` holds the answer."""

    article: str  # title of the article that it belongs to; "" for the page of the parties
    heading: str
    text: str  # "{s}" stands for the number of the schedule
    question: str
    answer: str
    lay: bool = True
    schedule: str = ""  # title of the schedule that completes the answer
    row: tuple[str, ...] = ()


FACTS: tuple[Fact, ...] = (
    Fact("", "", "", "Which business has been hired to do the work?", "Calder & Finch Engineering Limited"),
    Fact(
        "Term",
        "Commencement and expiry",
        "This Agreement takes effect on 1 March 2024 (the “Commencement Date”) and, unless it is "
        "terminated earlier in accordance with its terms, expires at midnight on 28 February 2031 "
        "(the “Expiry Date”).",
        "On what day is the whole deal over if nobody does anything?",
        "28 February 2031",
    ),
    Fact(
        "Extension of the Term",
        "Exercise of the option",
        "The Customer may extend the Contract Period by one Extension Period of eighteen (18) months "
        "by written notice given not later than nine (9) months before the Expiry Date.",
        "How many months before the Expiry Date must the Customer give notice to extend the Contract Period?",
        "nine (9) months",
        lay=False,
    ),
    Fact(
        "Acceptance Testing",
        "Repeated failure",
        "Where an item of Equipment fails three (3) consecutive Acceptance Tests, the Customer may "
        "reject that item finally, and the Supplier shall remove it at its own cost and return all "
        "sums paid for it.",
        "How many goes does a new machine get before we can send it back for good?",
        "three (3) consecutive",
    ),
    Fact(
        "Invoicing and Payment",
        "Due date",
        "Each valid invoice falls due for payment forty-five (45) days after the day on which the "
        "Accounts Office receives it, and the Customer shall discharge it by bank transfer.",
        "How long do we have to settle a bill?",
        "forty-five (45) days",
    ),
    Fact(
        "Late Payment",
        "Default interest",
        "Sums outstanding after their due date bear default interest at 3.5 per cent per annum above "
        "the reference rate of the central bank, computed from day to day until they are discharged.",
        "At what rate does default interest accrue on sums outstanding after their due date?",
        "3.5 per cent",
        lay=False,
    ),
    Fact(
        "Service Credits",
        "Amount of the credit",
        "For every Availability Failure of Category A Equipment a Service Credit becomes due. Its "
        "amount is stated in the row for Category A of Schedule {s}, and it is set off against the "
        "Charges of the following month.",
        "How much do we get back each time one of the most important machines is out of action?",
        "EUR 4,750",
        schedule="Service Levels",
        row=("Category A Equipment", "99.2 %", "Service Credit", "EUR 4,750 per Availability Failure"),
    ),
    Fact(
        "Spare Parts",
        "Dispatch of Critical Spares",
        "The Supplier shall dispatch any Critical Spare within six (6) hours of a request logged by "
        "the Duty Engineer, on every day of the year.",
        "A vital component has broken: how fast must a new one be sent out?",
        "six (6) hours",
    ),
    Fact(
        "Preventive Maintenance",
        "Interval",
        "The Supplier shall carry out Preventive Maintenance on every sterilising unit at intervals "
        "of not more than eleven (11) weeks, whether or not a fault has been reported.",
        "At what intervals must Preventive Maintenance be carried out on sterilising units?",
        "eleven (11) weeks",
        lay=False,
    ),
    Fact(
        "Training",
        "Additional training days",
        "Beyond the courses included in the Charges the Customer may order additional training days. "
        "Each is charged at the rate for a certified instructor in Schedule {s}.",
        "What does it cost to have our people taught for one more day?",
        "EUR 1,385",
        schedule="Price List",
        row=("T-17", "Certified instructor, additional training", "per day", "EUR 1,385"),
    ),
    Fact(
        "Insurance",
        "Public liability",
        "The Supplier shall maintain public liability insurance with a sum insured of not less than "
        "EUR 12,500,000 for any one occurrence, with an insurer of good repute.",
        "What is the minimum sum insured under the public liability insurance?",
        "EUR 12,500,000",
        lay=False,
    ),
    Fact(
        "Data Protection",
        "Personal data breach",
        "The Supplier shall notify the Data Protection Officer of any personal data breach without "
        "undue delay and in any event within twenty-six (26) hours after becoming aware of it.",
        "If patient details are stolen by hackers, how soon do we have to be told?",
        "twenty-six (26) hours",
    ),
    Fact(
        "Confidentiality",
        "Survival",
        "The obligations of this Article survive expiry or termination of this Agreement for seven "
        "(7) years, and for clinical information without limit in time.",
        "How long must both sides go on guarding each other's secrets once it is all over?",
        "seven (7) years",
    ),
    Fact(
        "Audit",
        "Notice of an audit",
        "The Customer may audit the accounts and systems of the Supplier not more than twice in a "
        "Contract Year, upon fifteen (15) Business Days' prior notice in writing.",
        "How much warning do we have to give before we go through their books?",
        "fifteen (15) Business Days",
    ),
    Fact(
        "Non-Solicitation",
        "Compensation",
        "A Party that engages a member of the other Party's personnel in breach of this Article shall"
        " compensate the other Party in the amount of 40 per cent of the gross annual remuneration of"
        " that individual.",
        "What is the charge for poaching one of the other side's workers?",
        "40 per cent",
    ),
    Fact(
        "Limitation of Liability",
        "Annual cap",
        "The aggregate liability of the Supplier arising in any Contract Year shall not exceed the "
        "Annual Liability Cap, the amount of which is stated in Schedule {s}.",
        "What is the most money they could be made to hand over in one year if things go badly wrong?",
        "EUR 8,640,000",
        schedule="Financial Limits",
        row=("Annual Liability Cap", "aggregate, per Contract Year", "EUR 8,640,000"),
    ),
    Fact(
        "Force Majeure",
        "Prolonged event",
        "If a Force Majeure Event prevents performance of a substantial part of the Services for more"
        " than one hundred and twenty (120) consecutive days, either Party may terminate this "
        "Agreement by written notice.",
        "A flood has stopped everything: how long before we may walk away?",
        "one hundred and twenty (120)",
    ),
    Fact(
        "Escalation",
        "Second level",
        "A complaint not resolved at the first level within four Business Days passes to the "
        "second-level escalation representative of the Supplier, who is named in Schedule {s} and "
        "shall call the Customer the same day.",
        "Who is the person to ring when a grievance has got stuck lower down?",
        "Ingrid Solheim",
        schedule="Contacts",
        row=("Second-level escalation representative", "Ingrid Solheim", "+47 22 555 0184"),
    ),
    Fact(
        "Dispute Resolution",
        "Seat of arbitration",
        "Any dispute not settled by the Joint Board shall be finally settled by arbitration before "
        "three arbitrators. The seat of arbitration is Stockholm, and the language of the proceedings"
        " is English.",
        "In which city would a fight between the two sides end up being decided?",
        "Stockholm",
    ),
)
"""In document order; the answers of those with a schedule stand in it."""
