"""The text of a PDF, page by page: pypdfium2 first, pypdf where it cannot parse the file."""

from __future__ import annotations

import io
import logging
import re

from zerolayer.errors import (
    DamagedDocumentError,
    EncryptedDocumentError,
    ScannedDocumentError,
)

_TRAILER = re.compile(rb"startxref\s+(\d+)\s*(?:%[^\n]*\s*)?%%EOF")
_TAIL_BYTES = 4096
_LEAST_CHARACTERS = 4
"""Mean characters a page below which a PDF of several pages counts as scanned: page numbers are not text."""


def pdf_pages(data: bytes, name: str) -> list[str]:
    """Raw text of every page. Raises Encrypted-, Damaged- or ScannedDocumentError."""
    _check_complete(data, name)
    pages = _with_pdfium(data, name)
    if pages is None:
        pages = _with_pypdf(data, name)
    characters = sum(len("".join(page.split())) for page in pages)
    if characters == 0 or (len(pages) > 1 and characters < _LEAST_CHARACTERS * len(pages)):
        raise ScannedDocumentError(
            f"{name} has {len(pages)} pages but {characters} characters of text: it is probably a scan; "
            f"add a text layer first, for example with `ocrmypdf {name} out.pdf`"
        )
    return pages


def _check_complete(data: bytes, name: str) -> None:
    """A cut file is refused, since repair would read the pages that are left and lose the rest in silence."""
    if b"%PDF-" not in data[:1024]:
        raise DamagedDocumentError(
            f"{name} ends in .pdf but does not begin with %PDF-: rename it if it is text, "
            "or download it again"
        )
    offsets = [int(found) for found in _TRAILER.findall(data[-_TAIL_BYTES:])]
    if not any(0 < offset < len(data) for offset in offsets):
        raise DamagedDocumentError(
            f"{name} is incomplete: after {len(data)} bytes the end of a PDF (startxref … %%EOF) is missing; "
            "download or copy it again, or repair it with `qpdf in.pdf out.pdf` and check its pages"
        )


def _encrypted(name: str) -> EncryptedDocumentError:
    return EncryptedDocumentError(
        f"{name} is encrypted and needs a password; save it without one, for example with "
        f"`qpdf --decrypt --password=… {name} out.pdf`"
    )


def _with_pdfium(data: bytes, name: str) -> list[str] | None:
    """Text of the pages, or None where pdfium cannot parse the file."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise _encrypted(name) from error
        return None
    try:
        pages: list[str] = []
        for index in range(len(document)):
            page = document[index]
            textpage = page.get_textpage()
            pages.append(str(textpage.get_text_range()))
            textpage.close()
            page.close()
    except pypdfium2.PdfiumError:
        return None
    finally:
        document.close()
    return pages or None


def _with_pypdf(data: bytes, name: str) -> list[str]:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.ERROR)
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted:
            raise _encrypted(name)
        pages = [page.extract_text() for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # pypdf reports malformed objects with whatever its parser met; all of them mean a damaged file here.
        raise DamagedDocumentError(
            f"{name} cannot be parsed as a PDF ({type(error).__name__}: {error}); "
            "download it again, or repair it with `qpdf in.pdf out.pdf`"
        ) from error
    if not pages:
        raise DamagedDocumentError(f"{name} is a PDF without pages; download it again")
    return pages
