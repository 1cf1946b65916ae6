"""Text ↔ program: one instruction a line, `#` starts a comment, blank lines are skipped.

The words come from `isa.FORMS`; this file knows how an operand is spelled, not which instructions exist.
Whether a program is lawful is the verifier's question, not the assembler's.
"""

from __future__ import annotations

import difflib
import re

from zerolayer.errors import AssemblyError
from zerolayer.execution.isa import FORMS, Instruction, Operand, Program

# Bounded lengths: an address has 64 bits, and int() refuses more than 4,300 digits with an error of its own.
_SPELLING = {
    Operand.ADDRESS: re.compile(r"0x[0-9a-fA-F]{1,16}"),
    Operand.SIZE: re.compile(r"[0-9]{1,19}"),
    Operand.CODEC: re.compile(r"[A-Z][A-Z0-9_]{0,31}"),
}
_SHOWN = 80  # characters of a wrong line that a message repeats


def assemble(text: str) -> Program:
    """The program that `text` spells. Raises AssemblyError naming the first wrong line and its fix."""
    instructions: list[Instruction] = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if words:
            instructions.append(_instruction(number, line, words))
    return Program(tuple(instructions))


def disassemble(program: Program) -> str:
    """The text of `program`, one instruction a line; `assemble` gives the same program back."""
    return program.text()


def _instruction(number: int, line: str, words: list[str]) -> Instruction:
    mnemonic, *given = words
    form = FORMS.get(mnemonic)
    if form is None:
        close = difflib.get_close_matches(mnemonic[:_SHOWN].upper(), FORMS, n=1)
        fix = f"write {close[0]}" if close else "use one of these, in capitals"
        raise _error(number, line, f"unknown instruction; expected one of {', '.join(FORMS)}; {fix}")
    kind, operands = form
    if len(given) != len(operands):
        usage = " ".join([mnemonic, *(name for name, _ in operands)])
        fix = (
            "add what is missing"
            if len(given) < len(operands)
            else "one instruction a line; comments start with #"
        )
        raise _error(number, line, f"{len(given)} operands; expected {len(operands)}: {usage}; {fix}")
    values: list[int | str] = []
    for (name, operand), word in zip(operands, given, strict=True):
        if _SPELLING[operand].fullmatch(word) is None:
            problem = f"{name} is {word[:_SHOWN]!r}; expected {operand.value}; {_fix(operand, word)}"
            raise _error(number, line, problem)
        values.append(_value(operand, word))
    # The table pairs every class with its own fields in order, which the type checker cannot see.
    return kind(*values)  # type: ignore[arg-type]


def _value(operand: Operand, word: str) -> int | str:
    if operand is Operand.CODEC:
        return word
    return int(word, 16 if operand is Operand.ADDRESS else 10)


def _fix(operand: Operand, word: str) -> str:
    """A spelling that would do, where one can be guessed."""
    guess = ""
    if operand is Operand.ADDRESS:
        guess = "0x" + word.lower().removeprefix("0x").replace("_", "")
    elif operand is Operand.SIZE:
        guess = word.replace("_", "").replace(",", "")
    elif operand is Operand.CODEC:
        guess = word.upper().replace("-", "_")
    if len(guess) <= _SHOWN and _SPELLING[operand].fullmatch(guess):
        return f"write {guess}"
    return "correct the operand"


def _error(number: int, line: str, problem: str) -> AssemblyError:
    shown = line.strip()
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "…"
    return AssemblyError(f"line {number}: {shown!r}: {problem}")
