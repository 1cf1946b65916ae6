"""Addresses, instructions and their text form."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.core import Tier
from zerolayer.errors import AddressError, AssemblyError, ProgramError, SettingError
from zerolayer.execution.addresses import DISK_BASE, HOST_BASE, WINDOW_BYTES, AddressSpace, Location
from zerolayer.execution.assembler import assemble, disassemble
from zerolayer.execution.isa import (
    FORMS,
    MNEMONICS,
    CompressP2,
    EvictP3,
    Instruction,
    Knit,
    MoveP0,
    Operand,
    Outcome,
    OutcomeStatus,
    PinL2,
    Prefetch,
    Program,
    Spill,
    Unpin,
)
from zerolayer.execution.verifier import Law, MachineState, verify

SPACE = AddressSpace(slot_bytes=0x1000, slots=8, blocks=100)

VALUES = {
    Operand.ADDRESS: st.integers(0, 2**64 - 1),
    Operand.SIZE: st.integers(0, 10**19 - 1),
    Operand.CODEC: st.from_regex(r"[A-Z][A-Z0-9_]{0,31}", fullmatch=True),
}


def instruction_of(mnemonic: str) -> st.SearchStrategy[Instruction]:
    kind, operands = FORMS[mnemonic]
    return st.builds(kind, **{name: VALUES[operand] for name, operand in operands})


PROGRAMS = st.lists(st.sampled_from(sorted(FORMS)).flatmap(instruction_of), max_size=20).map(Program)


# Address space


@given(st.integers(0, 7), st.integers(0, 99))
def test_every_place_has_one_address_and_comes_back(slot: int, block: int) -> None:
    assert SPACE.decode(SPACE.device(slot)) == Location(Tier.DEVICE, slot)
    assert SPACE.decode(SPACE.host(block)) == Location(Tier.HOST, block)
    assert SPACE.decode(SPACE.disk(block)) == Location(Tier.DISK, block)
    assert SPACE.device(slot) == slot * 0x1000
    assert SPACE.host(block) == 0x1000_0000_0000 + block * 0x1000
    assert SPACE.disk(block) == 0x2000_0000_0000 + block * 0x1000


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        (0x1001, ["0x1001", "misaligned by 1", "multiple of 4096", "0x1000"]),
        (8 * 0x1000, ["0x8000", "slot 8", "0 to 7", "use one of them"]),
        (HOST_BASE + 100 * 0x1000, ["block 100", "0 to 99"]),
        (DISK_BASE + 100 * 0x1000, ["block 100", "0 to 99"]),
        (-0x1000, ["-0x1000", "no tier", "0x100000000000"]),
        (DISK_BASE + WINDOW_BYTES, ["no tier"]),
    ],
)
def test_an_address_that_names_nothing_says_what_is_allowed(address: int, parts: list[str]) -> None:
    with pytest.raises(AddressError) as error:
        SPACE.decode(address)
    assert isinstance(error.value, ProgramError)
    for part in parts:
        assert part in str(error.value)


def test_a_place_that_does_not_exist_has_no_address() -> None:
    for ask in (lambda: SPACE.device(8), lambda: SPACE.host(100), lambda: SPACE.disk(-1)):
        with pytest.raises(AddressError, match="out of range"):
            ask()
    with pytest.raises(AddressError, match="no block exists"):
        AddressSpace(64, 1, 0).host(0)


@given(st.integers())
def test_decoding_any_number_gives_a_place_or_an_address_error(address: int) -> None:
    try:
        place = SPACE.decode(address)
    except AddressError:
        return
    assert getattr(SPACE, place.tier.value)(place.index) == address


@pytest.mark.parametrize(
    ("slot_bytes", "slots", "blocks"), [(0, 1, 1), (-1, 1, 1), (64, -1, 1), (2**40, 17, 1), (64, 1, 2**39)]
)
def test_a_space_that_would_make_tiers_overlap_is_refused(slot_bytes: int, slots: int, blocks: int) -> None:
    with pytest.raises(SettingError, match="must"):
        AddressSpace(slot_bytes, slots, blocks)


# Instructions


def test_the_table_lists_every_instruction_with_its_fields_in_order() -> None:
    assert set(MNEMONICS) == set(Instruction.__args__)
    for kind, operands in FORMS.values():
        assert [field.name for field in dataclasses.fields(kind)] == [name for name, _ in operands]


def test_instructions_are_values() -> None:
    assert EvictP3(0, 64) == EvictP3(0, 64)
    assert len({EvictP3(0, 64), EvictP3(0, 64), PinL2(0, 64)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        EvictP3(0, 64).addr = 1  # type: ignore[misc]


def test_a_program_is_a_sequence_of_any_iterable() -> None:
    program = Program(instruction for instruction in [EvictP3(0, 64), Unpin(64, 64)])  # type: ignore[arg-type]
    assert program.instructions == (EvictP3(0, 64), Unpin(64, 64))
    assert len(program) == 2
    assert program[1] == Unpin(64, 64)
    assert list(program) == [EvictP3(0, 64), Unpin(64, 64)]


def test_an_outcome_says_what_became_of_an_instruction() -> None:
    outcome = Outcome(Knit(0, 64), OutcomeStatus.DEFERRED, "busy", 64, 12)
    assert f"{outcome.status}" == "deferred"
    assert {str(status) for status in OutcomeStatus} == {"done", "deferred", "refused"}


# Text


def test_the_text_form_is_the_documented_one() -> None:
    program = Program(
        (
            MoveP0(SPACE.host(2), SPACE.device(3), 0x1000),
            CompressP2(0x1000, 4096, "K8V4"),
            EvictP3(0x1000, 8192),
            PinL2(0, 4096),
            Unpin(0, 4096),
            Prefetch(SPACE.disk(5), 4096),
            Spill(SPACE.host(2), 4096),
            Knit(0x3000, 4096),
        )
    )
    assert disassemble(program) == (
        "MOVE_P0 0x100000002000 0x3000 4096\n"
        "COMPRESS_P2 0x1000 4096 K8V4\n"
        "EVICT_P3 0x1000 8192\n"
        "PIN_L2 0x0 4096\n"
        "UNPIN 0x0 4096\n"
        "PREFETCH 0x200000005000 4096\n"
        "SPILL 0x100000002000 4096\n"
        "KNIT 0x3000 4096\n"
    )


@pytest.mark.parametrize("mnemonic", sorted(FORMS))
@given(data=st.data())
def test_every_instruction_round_trips(mnemonic: str, data: st.DataObject) -> None:
    program = Program((data.draw(instruction_of(mnemonic)),))
    assert assemble(disassemble(program)) == program


@given(PROGRAMS)
def test_programs_round_trip(program: Program) -> None:
    assert assemble(program.text()) == program
    assert disassemble(assemble(program.text())) == program.text()


def test_comments_blank_lines_and_line_ends_are_free() -> None:
    text = "# close the hole\r\n\n   \nEVICT_P3   0x1000\t4096  # cold\r\n  MOVE_P0 0xABC 0x0 64#done"
    assert assemble(text) == Program((EvictP3(0x1000, 4096), MoveP0(0xABC, 0, 64)))
    assert assemble("") == Program()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "EVICT_P3 0x0 64\nMOVE_P1 0x0 0x0 64",
            ["line 2", "'MOVE_P1 0x0 0x0 64'", "MOVE_P0, COMPRESS_P2", "write"],
        ),
        ("evict_p3 0x0 64", ["line 1", "write EVICT_P3"]),
        ("\n\nEVICT_P3 0x0", ["line 3", "1 operands", "EVICT_P3 addr size", "add what is missing"]),
        ("KNIT 0x0 64 EVICT_P3 0x0 64", ["line 1", "5 operands", "KNIT addr size"]),
        ("EVICT_P3 4096 64", ["addr is '4096'", "hexadecimal", "write 0x4096"]),
        ("EVICT_P3 0x1_000 64", ["write 0x1000"]),
        ("EVICT_P3 0x11112222333344445 64", ["up to 16 digits"]),
        ("EVICT_P3 0x0 0x40", ["size is '0x40'", "decimal"]),
        ("EVICT_P3 0x0 4_096", ["write 4096"]),
        ("EVICT_P3 0x0 -64", ["size is '-64'"]),
        ("EVICT_P3 0x0 ٦٤", ["size is '٦٤'", "decimal"]),
        ("EVICT_P3 0x0 " + "9" * 5000, ["line 1", "size is", "up to 19 digits"]),
        ("COMPRESS_P2 0x0 64 k8v4", ["codec is 'k8v4'", "capitals", "write K8V4"]),
    ],
)
def test_a_wrong_line_is_named_with_what_is_expected_and_the_fix(text: str, parts: list[str]) -> None:
    with pytest.raises(AssemblyError) as error:
        assemble(text)
    message = str(error.value)
    assert len(message) < 600
    for part in parts:
        assert part in message


WORDS = st.one_of(
    st.sampled_from([*FORMS, "0x0", "0x", "64", "K8V4", "#", "-1", "0xG", "\n", "\r"]), st.text(max_size=8)
)


@given(st.one_of(st.text(), st.lists(WORDS, max_size=30).map(" ".join)))
def test_arbitrary_text_assembles_or_raises_an_assembly_error(text: str) -> None:
    try:
        program = assemble(text)
    except AssemblyError as error:
        assert "line " in str(error)
    else:
        assert assemble(program.text()) == program


# Documentation

DOCUMENT = (Path(__file__).parents[2] / "docs" / "isa.md").read_text(encoding="utf-8")


def test_the_documented_example_is_a_program_that_uses_every_instruction() -> None:
    example = DOCUMENT.split("```asm\n")[1].split("```")[0]
    program = assemble(example)
    assert {type(instruction) for instruction in program} == set(MNEMONICS)
    space = AddressSpace(65536, 8, 64)
    slots = {0: 1, 1: 2, 2: 3, 3: 7, 5: 9}
    state = MachineState(
        capacity=6, slots=slots, on_host={2, 12, 20}, on_disk={32}, codecs={"K8V4"}, recomputable=False
    )
    state.host_free, state.disk_free, state.pin_free = 10**6, 10**6, 262144
    verify(program, state, space)


def test_the_tables_list_every_instruction_and_law() -> None:
    for mnemonic, (kind, operands) in FORMS.items():
        usage = " ".join([mnemonic, *(name.upper() if name == "codec" else name for name, _ in operands)])
        assert f"| `{usage}` | `{kind.__name__}({', '.join(name for name, _ in operands)})` |" in DOCUMENT
    for law in Law:
        assert f"| `{law}` | " in DOCUMENT
