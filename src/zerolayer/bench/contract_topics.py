"""What the articles of the synthetic contract are about."""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    """One article. The phrases fill the slots of the clause templates."""

    title: str
    thing: str  # what is governed
    act: str  # what the Supplier does, a gerund
    record: str  # the paper that proves it
    role: str  # who sees to it
    risk: str  # what may go wrong
    detail: str  # one sentence that only this article has


_TEXT = """
Scope of Services | the Services | performing the Services
service catalogue | Service Director | a gap between two work packages
Work in the laundry and the boiler house forms part of the Services even where a drawing omits it.

Term | the Contract Period | planning the calendar of work
milestone calendar | Contract Manager | a gap in continuity
No holding over shall arise merely because the Supplier continues to attend at a Site.

Extension of the Term | any Extension Period | preparing for an Extension Period
extension proposal | Commercial Lead | a rise in indexed costs
Option rights lapse if they are not exercised in the manner stated here.

Mobilisation | the Mobilisation Plan | taking over the Sites from the outgoing contractor
handover inventory | Mobilisation Manager | missing keys or drawings
Stores found at a Site on the first morning are counted by both Parties together.

Governance Meetings | the Joint Board | holding monthly governance meetings
signed minutes | Joint Board Chair | decisions taken without a quorum
Three members from each side form a quorum, and a deputy may sit for any of them.

Site Access | entry to the Sites | bringing vehicles and plant through the gates
gate register | Site Warden | obstruction of an ambulance route
Helicopter landing areas stay clear at all hours.

Delivery of Equipment | the Equipment | delivering and unloading the Equipment
consignment note | Logistics Supervisor | shock or tilt in transit
Crates above two tonnes travel with a shock recorder whose reading is photographed on arrival.

Installation | installation works | fixing, connecting and levelling plant
installation dossier | Installation Engineer | an undetected cable or duct
Floor loading is confirmed by a chartered engineer before heavy plant is set down.

Commissioning | commissioning works | bringing plant into first operation
commissioning sheet | Commissioning Engineer | unstable supply voltage
Every interlock is tripped once by hand before first use on a ward.

Acceptance Testing | the Acceptance Tests | running the Acceptance Tests
test certificate | Test Manager | a result that cannot be reproduced
Instruments used in a test carry a calibration sticker less than a year old.

Title and Risk | title to the Equipment | identifying goods in store
vesting certificate | Asset Accountant | a lien asserted by a haulier
Goods paid for in advance are marked with the name of the Customer.

Charges | the Charges | calculating the Charges
statement of Charges | Finance Controller | an item counted twice
A credit balance at the close of a Contract Year is carried into the next.

Invoicing and Payment | invoices | issuing and settling invoices
valid invoice | Accounts Office | a missing purchase order
Payment on account is no admission that the work was in order.

Late Payment | sums outstanding after their due date | reminding a debtor
ledger extract | Treasury Officer | a payment sent to the wrong account
Bank holidays in the payee's city do not count as late days.

Indexation | indexed Charges | adjusting the Charges to the published index
index worksheet | Cost Analyst | withdrawal of the index
Only the labour element, being seven tenths of each rate, moves with the index.

Taxes and Duties | taxes and customs duties | declaring imported goods
customs entry | Tax Adviser | reclassification of a tariff heading
Each Party bears the taxes on its own income.

Service Levels | the Service Levels | measuring the Service Levels
monthly performance report | Performance Analyst | an incorrect clock on a monitoring server
Planned outages agreed in writing are left out of the measurement.

Service Credits | Service Credits | deducting Service Credits
credit ledger | Performance Analyst | two credits claimed for one event
Service Credits are a price adjustment and not a penalty.

Help Desk | the Help Desk | answering and logging requests
ticket history | Help Desk Leader | a lost telephone line
Callers may ask for an interpreter in any of nine languages.

Response and Repair | reactive repairs | attending and repairing faults
repair ticket | Duty Engineer | a second failure during repair
Temporary repairs are tagged in yellow until the lasting repair is done.

Spare Parts | Critical Spares and consumables | stocking Critical Spares
bin card | Stores Keeper | obsolescence of a component
Refurbished items are used only with the prior agreement of the Customer in writing.

Obsolescence | end-of-life notices from manufacturers | tracking product lifetimes
obsolescence register | Lifecycle Planner | a final purchase date that passes unseen
Drawings of discontinued castings are kept for local reproduction.

Preventive Maintenance | Preventive Maintenance | carrying out Preventive Maintenance
maintenance card | Maintenance Planner | access denied by a clinical list
Lubricants are recorded by batch.

Calibration | calibration of instruments | calibrating instruments
calibration certificate | Metrology Technician | drift beyond tolerance
Reference weights travel in a padded case and are never cleaned with solvent.

Energy Management | energy use at the Sites | reducing energy use
meter reading sheet | Energy Manager | a stuck meter
Half-hourly data belong to the Customer from the moment of reading.

Water Hygiene | water systems | flushing and sampling outlets
sample result | Water Safety Officer | growth of legionella
Little-used outlets on closed wards are flushed on Mondays and Thursdays.

Waste and Recycling | waste streams | sorting and removing waste
transfer note | Waste Coordinator | a sharp in a soft bag
Confidential paper is shredded on the Site and never baled whole.

Cleaning | cleaning of technical areas | cleaning plant rooms
cleaning rota | Cleaning Supervisor | dust in an air intake
Cloths are colour coded, and red cloths stay in sanitary areas.

Pest Control | pest control | inspecting traps and bait
pest logbook | Pest Control Officer | poisoning of a protected bird
Bait boxes near kitchens are numbered and shown on a plan.

Grounds | grounds and roads | clearing snow and cutting verges
grounds diary | Head Gardener | ice on a ramp
Gritting begins before five in the morning when frost is forecast.

Training | training of the Customer's operators | holding training courses
attendance list | Training Coordinator | a course without a competent teacher
Course books are printed in large type on request.

Key Personnel | Key Personnel | retaining Key Personnel
staff chart | Human Resources Partner | illness of a named specialist
A named specialist gives at least one hour a week to mentoring.

Vetting | background checks | vetting persons before their first shift
vetting certificate | Security Officer | a forged reference
Persons who have lived abroad bring an extract from the register of that country.

Health and Safety | health and safety at work | assessing hazards
risk assessment | Safety Adviser | a fall from height
Lone workers carry an alarm that also works in basements.

Fire Safety | fire precautions | testing detectors and dampers
fire log | Fire Officer | a blocked escape stair
Hot work ends one hour before the permit does, and the place is watched until then.

Asbestos | asbestos-containing materials | surveying before drilling
asbestos register | Asbestos Coordinator | release of fibres
Sealed risers stay sealed unless air tests are running.

Insurance | required insurances | maintaining required insurances
broker's letter | Insurance Manager | lapse of cover
Excesses are borne by the insured Party alone.

Warranties | warranties given by the Supplier | making good defects
warranty card | Quality Manager | a latent defect
A replaced part carries a fresh warranty of its own.

Quality Assurance | the quality system | auditing the quality system
quality plan | Quality Manager | a nonconformity left open
Lessons from other hospitals are shared at the spring meeting.

Change Control | Changes | pricing and approving Changes
Change request | Change Manager | work begun without approval
A Change below the petty limit is approved by e-mail.

Software Licences | the Licensed Software | installing the Licensed Software
licence schedule | Software Librarian | an unlicensed copy
Test copies are deleted when a release goes live.

Source Code Deposit | the Deposited Materials | depositing source code
deposit receipt | Escrow Officer | an unreadable medium
The agent compiles the deposit once a year and reports the outcome.

Intellectual Property | Intellectual Property Rights | recording new works and inventions
invention disclosure | Patent Counsel | a claim of infringement
Photographs of patients are never works under this Article.

Data Protection | personal data | processing personal data
processing record | Data Protection Officer | unlawful disclosure
Images from ward cameras are blurred before analysis.

Information Security | information systems | patching servers and networks
patch report | Information Security Officer | ransomware
Removable media are blocked by default on every console.

Confidentiality | Confidential Information | safeguarding Confidential Information
disclosure register | Company Secretary | a careless forward of an e-mail
Estimates given in tender interviews count as Confidential Information.

Publicity | public statements | issuing press statements
press clearance | Communications Officer | a misleading headline
No uniform of the Customer appears in an advertisement.

Records | records kept under this Agreement | filing and indexing records
archive list | Records Manager | decay of thermal paper
Paper originals with wet ink are stored in acid-free boxes.

Audit | audits of the Supplier | supporting audits
audit report | Internal Auditor | a refused interview
Auditors wear visitor badges and are escorted in clean rooms.

Anti-Corruption | anti-corruption rules | refusing improper advantages
gift register | Compliance Officer | a facilitation payment
Calendars and pens of small value need not be registered.

Labour Standards | working conditions | paying a fair wage to all workers
payroll extract | Employment Adviser | forced labour in a supply chain
Night shifts are followed by eleven hours of rest.

Subcontracting | Subcontractors | appointing and supervising Subcontractors
Subcontract copy | Procurement Lead | insolvency of a Subcontractor
A specialist named in the tender needs no fresh approval.

Non-Solicitation | the recruitment of each other's personnel | keeping recruiters informed
recruitment log | Human Resources Partner | an indirect approach through an agency
General newspaper advertisements are outside this Article.

Assignment | assignment and novation | preparing a deed of novation
deed of novation | Company Secretary | an unnoticed change in shareholding
Charges over receivables in favour of a bank are allowed.

Environmental Protection | emissions and discharges | preventing spills
spill report | Environmental Adviser | leakage of refrigerant
Bunds hold one and a tenth times the largest tank.

Business Continuity | the Continuity Plan | rehearsing the Continuity Plan
exercise report | Continuity Planner | loss of the main depot
A rehearsal without warning takes place each autumn.

Limitation of Liability | liability under this Agreement | assessing losses
loss adjuster's report | Legal Counsel | an uninsured loss
Nothing here limits liability for death or personal injury caused by negligence.

Indemnities | indemnities | defending third-party claims
claim file | Legal Counsel | a settlement made without consent
The indemnified Party keeps the right to attend hearings.

Force Majeure | a Force Majeure Event | mitigating a Force Majeure Event
event diary | Continuity Planner | a false claim of hindrance
Shortage of funds is never a Force Majeure Event.

Step-In | step-in rights | cooperating during step-in
step-in notice | Operations Director | confusion about who commands a shift
Step-in ends gradually, ward by ward.

Termination | termination of this Agreement | winding down the Services
termination notice | Contract Manager | an invalid notice
Termination of one work package leaves the others in force.

Exit Management | the Exit Plan | transferring assets and knowledge
exit checklist | Exit Manager | loss of passwords
Shadowing by the incoming contractor lasts one full month.

Escalation | unresolved complaints | escalating unresolved complaints
escalation sheet | Relationship Manager | a complaint that is passed in circles
Weekend complaints begin their first level on Monday at eight.

Dispute Resolution | disputes | resolving disputes
statement of issues | Legal Counsel | parallel proceedings
Experts are chosen by lot from a list of five.

Notices | formal notices | serving formal notices
proof of service | Company Secretary | an outdated address
A notice by courier is deemed received on the second Business Day after dispatch.

General Provisions | the remainder of this Agreement | keeping a conformed copy
conformed copy | Company Secretary | an unsigned amendment
Headings are for convenience and carry no meaning.
"""

TOPICS: tuple[Topic, ...] = tuple(
    Topic(*(part.strip() for line in block.splitlines() for part in line.split(" | ")))
    for block in _TEXT.strip().split("\n\n")
)
"""In the order in which they stand in the contract."""
