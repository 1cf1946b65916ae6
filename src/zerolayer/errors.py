"""Every error zerolayer raises on purpose, as one tree.

    ZerolayerError                 exit 1
    ├── UsageError                 exit 2: what was asked for cannot be asked for
    │   ├── UnknownNameError       a policy, codec, tier or model name that is not registered
    │   ├── SettingError           a setting with an impossible value
    │   ├── BudgetError            a memory budget too small for the smallest working set
    │   ├── QuestionTooLongError   the question leaves no room in the model's window
    │   └── RequestError           a field of an HTTP request with an impossible value
    ├── DocumentError              exit 1: the document cannot be read
    │   ├── EmptyDocumentError
    │   ├── ScannedDocumentError   a PDF with pages but no text
    │   ├── EncryptedDocumentError
    │   ├── DamagedDocumentError
    │   └── EncodingError          a text file that is not text in a known encoding
    ├── ModelError                 exit 1: the model cannot be found, loaded or attached to
    ├── StoreError                 exit 1: tiers and the session store
    │   ├── StoreFullError         budgets or the disk itself are exhausted
    │   ├── StoreVersionError      written by another version of zerolayer
    │   ├── StoreModelError        written by another model
    │   ├── BlockMissingError
    │   └── BlockCorruptError      a checksum does not match
    ├── OverloadedError            exit 1: the service has no room for another turn now; try again later
    ├── ServerError                exit 1: no zerolayer server answers at an address, or not as it should
    ├── TraceError                 exit 1: a trace of block references cannot be read
    └── ProgramError               exit 1: an instruction program was refused
        ├── AddressError           an address that names no place, or a place outside its tier
        ├── AssemblyError          the text is not a program
        └── VerificationError      the program would break a law

A message names the thing, its value, what is allowed, and the fix.
"""

from __future__ import annotations

from collections.abc import Iterable


class ZerolayerError(Exception):
    """Base of all errors raised on purpose."""

    exit_code: int = 1


class UsageError(ZerolayerError):
    """What was asked for cannot be asked for."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that no registry knows; the message lists the known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(self.known)}")


class SettingError(UsageError):
    """A setting with an impossible value."""


class BudgetError(UsageError):
    """A memory budget too small for the smallest working set."""


class QuestionTooLongError(UsageError):
    """The question leaves no room for its answer in the window or the budget."""


class RequestError(UsageError):
    """A field of an HTTP request with an impossible value. `field` is its path, such as `messages.0.content`."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}")


class DocumentError(ZerolayerError):
    """The document cannot be read."""


class EmptyDocumentError(DocumentError):
    """No bytes, or nothing but white space."""


class ScannedDocumentError(DocumentError):
    """A PDF with pages but no text layer."""


class EncryptedDocumentError(DocumentError):
    """A PDF that needs a password."""


class DamagedDocumentError(DocumentError):
    """A file that its own format cannot parse."""


class EncodingError(DocumentError):
    """A text file that is not text in a known encoding."""


class ModelError(ZerolayerError):
    """The model cannot be found, loaded or attached to."""


class StoreError(ZerolayerError):
    """Something is wrong with a tier or the session store."""


class StoreFullError(StoreError):
    """A tier's budget, or the disk itself, is exhausted."""


class StoreVersionError(StoreError):
    """The store was written by another version of zerolayer."""


class StoreModelError(StoreError):
    """The store was written by another model."""


class BlockMissingError(StoreError):
    """The tier does not hold the block."""


class BlockCorruptError(StoreError):
    """The stored bytes of a block do not match their checksum."""


class OverloadedError(ZerolayerError):
    """The service has no room for another turn now; the same request may be sent again later."""


class ServerError(ZerolayerError):
    """No zerolayer server answers at an address, or it answers with an error."""


class TraceError(ZerolayerError):
    """A file is no trace, is of another version, or is damaged; the message names the line."""


class ProgramError(ZerolayerError):
    """An instruction program was refused."""


class AddressError(ProgramError):
    """An address that is misaligned, or a place outside its tier."""


class AssemblyError(ProgramError):
    """The text is not a program."""


class VerificationError(ProgramError):
    """The program would break a law; nothing of it was executed."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = list(reasons)
        super().__init__("program refused: " + "; ".join(self.reasons))
