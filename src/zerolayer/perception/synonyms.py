"""General words that stand for one another in everyday speech and in contracts and statutes.

From general knowledge of legal and business English, in groups; one word may be in several. It serves
paraphrased questions: people say "quit" where a contract says "terminate".
"""

from __future__ import annotations

from functools import lru_cache

from zerolayer.perception.words import stem

_GROUPS = """
end terminate termination expire expiration expiry finish cease cancel conclude lapse stop
quit leave terminate exit withdraw resign cancel walk
term duration length last period initial continue
start begin commence commencement effective enter inception
renew renewal extend extension prolong rollover automatically successive
early premature prior convenience
reason cause breach default material
breach violate violation default fail failure infringe non-compliance break
fix cure remedy repair correct rectify
pay payment fee price cost charge compensation remuneration consideration invoice money sum amount
salary wage compensation remuneration bonus
royalty royalties commission percentage revenue share profit net gross
late overdue delay interest delinquent past
bill invoice statement
tax taxes duty levy withholding vat
refund reimburse reimbursement credit repay return
deposit escrow prepayment advance security
rent lease premises tenant landlord
discount rebate reduction
minimum least floor quota guarantee commitment
maximum cap ceiling limit limitation exceed aggregate most
exceed excess above additional overage surplus
volume quantity quantities units number
fixed liquidated predetermined lump
penalty liquidated damages fine forfeit
damages loss losses harm injury consequential incidental indirect special punitive compensation
liability liable responsible responsibility obligation
indemnify indemnity indemnification hold harmless defend reimburse protect
exclude exclusion except exception carve notwithstanding waive limit
law governing governed jurisdiction construed laws statute legal rules
sue suit claim court litigation action lawsuit proceeding venue
dispute arbitration arbitrate mediation disagreement controversy conflict settle resolution
judge court arbitrator tribunal
release waive discharge covenant forgo
contest challenge dispute oppose attack invalidate validity
transfer assign assignment convey delegate sublicense novate transferee pass
personal non-transferable nontransferable nonassignable
sell sale sold dispose purchase acquisition
buy purchase acquire procure order
merger consolidation acquisition control change sale reorganization takeover ownership shareholder shares
control ownership majority voting
licence license permission right grant authorize consent permit allow
allow permit authorize consent approval entitle right may
approve approval consent agree authorization
forbid forbidden prohibit prohibited restrict restriction ban refrain shall
perpetual irrevocable forever indefinite permanent perpetuity revoke withdraw
unlimited unrestricted unconditional enterprise
exclusive exclusivity sole solely only
sole exclusive only single
compete competition competing competitive competitor rival noncompete similar
solicit solicitation hire employ recruit poach entice lure induce
employee personnel staff worker employment workforce
customer client buyer account patron
supplier vendor provider seller manufacturer
distributor reseller dealer agent sales
criticise criticize disparage disparaging derogatory defame negative
secret confidential confidentiality proprietary nondisclosure disclose private
disclose reveal tell share disclosure publish announce
publicity press announcement marketing advertising promotion
intellectual property patent copyright trademark invention idea work
brand trademark mark logo name trade
invention development improvement work product developed created create
know-how technology trade secret technical
own ownership owner title belong vest interest property
joint jointly co-own common shared together
affiliate subsidiary parent group related corporate
company corporation inc llc party organization firm business
third outsider beneficiary beneficiaries person persons stranger
successor heir assigns
audit inspect inspection examine examination review records books accounts
records books accounts documents documentation files
report statement reporting account
insurance insure insured policy coverage insurer underwriter
guarantee warrant warranty represent representation assurance
defect defective fault faulty nonconforming malfunction bug error
software program code source object
maintain support maintenance service upkeep
safe escrow deposit custody
deliver delivery ship shipment dispatch supply handover
late delay postpone behind
accept acceptance approve test inspection reject
notice notify notification inform warning written
inform notify advise tell notice
deadline prior days before within later
advance prior before ahead
written writing signed document
sign signed execute executed date dated signature
title name called agreement document entitled
effective date force commence
refuse refusal first offer negotiation option
first refusal offer negotiation priority preemptive
favored favorable favourable nation equal better terms treat
territory area region geographic country location field
place site location premises office facility
address notices attention attn
emergency force majeure disaster act god flood fire strike unforeseen beyond control
accident incident injury event
data privacy personal information protection processing
hacker breach security intrusion cyber unauthorized
computer system network software hardware server
break outage downtime interruption failure unavailable availability
training train instruct instruction education course
train instruct
boss manager supervisor director officer executive
contact representative manager coordinator address telephone
lawyer attorney counsel legal
bankrupt bankruptcy insolvency insolvent receiver liquidation creditors broke
wind surrender return transition cease wind-down destroy handover discontinue
return destroy deliver surrender
survive survival continue remain
keep maintain retain preserve hold
hand deliver transfer turn
change amend amendment modify modification vary variation alter
raise increase escalate adjustment adjust index
lower decrease reduce reduction
price pricing rate tariff fee
subcontract subcontractor delegate outsource
child minor
car vehicle automobile
house home property
work job services perform employment
quality standard specification
dangerous hazardous environmental waste
pollution environmental hazardous
theft stolen loss risk
bribe corruption corrupt gift improper
check verify background inspect
spare replacement part component
help assist assistance cooperate support
rude disparage
quick prompt promptly immediately expeditious respond response
answer respond response reply
yearly annual annually year
monthly month
weekly week
quarterly quarter
half fifty semi
解除 终止 结束 取消
开始 生效 起始 起算
付款 支付 价款 费用 缴纳 给付
违约 违反 不履行
赔偿 损失 损害 补偿
转让 让与 转移
离婚 婚姻 解除
孩子 子女 未成年人 儿童
父母 监护人 抚养
房子 房屋 住房 不动产
买 购买 买受
卖 出卖 出售
租 租赁 承租 出租
借 借款 贷款 出借
利息 利率
死 死亡 去世 继承
遗产 继承 遗嘱
打官司 诉讼 起诉 人民法院 仲裁
保密 秘密 隐私
老板 用人单位 法定代表人
邻居 相邻
"""


def expand(stems: frozenset[str]) -> frozenset[str]:
    """Stems that share a group with any of `stems`, without these themselves."""
    table = _table()
    return frozenset(other for one in stems for other in table.get(one, ())) - stems


@lru_cache(maxsize=1)
def _table() -> dict[str, frozenset[str]]:
    table: dict[str, set[str]] = {}
    for line in _GROUPS.strip().splitlines():
        group = {stem(part) for word in line.split() for part in word.split("-")}
        for one in group:
            table.setdefault(one, set()).update(group - {one})
    return {one: frozenset(others) for one, others in table.items()}
