"""Files to documents: .pdf, .txt, .md, and anything else that proves to be text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from zerolayer.documents.document import Document, Page
from zerolayer.documents.encoding import decode_text
from zerolayer.documents.layout import normalise_pages, without_running_lines
from zerolayer.documents.normalise import normalise
from zerolayer.documents.pdf import pdf_pages
from zerolayer.errors import DocumentError, EmptyDocumentError

PAGE_CHARACTERS = 3000
"""Length of a page of a text file, which has none of its own: about one printed page."""


def read_document(path: str | Path) -> Document:
    """The document in the file `path`.

    Text files have no pages: they are cut at form feeds if they hold any, else every PAGE_CHARACTERS
    characters at a line end. Their offsets are those of the file as Python reads it in text mode, so that
    labels of its characters stay true. Headers and footers stay where they stand first.
    Raises a DocumentError (its subclass says which) with the file and the fix.
    """
    path = Path(path)
    return parse_document(_read_bytes(path), path.name, pdf=path.suffix.lower() == ".pdf")


def parse_document(data: bytes, name: str, pdf: bool = False) -> Document:
    """The document in the bytes of a file, as `read_document`; `name` is what people call it.

    Whether it is a PDF is told by its first bytes, unless `pdf` says so.
    """
    if not data.strip():
        raise EmptyDocumentError(
            f"{name} is empty ({len(data)} bytes); give a .pdf, .txt or .md file with text"
        )
    # A PDF under another name is still a PDF; everything else is tried as text.
    if pdf or data.startswith(b"%PDF-"):
        text, pages = _tile(normalise_pages(pdf_pages(data, name)))
    else:
        text = normalise(decode_text(data, name), keep_length=True)
        text, pages = _split_pages(text) if "\f" in text else (text, _cut_pages(text))
    if not text.strip():
        raise EmptyDocumentError(
            f"{name} holds nothing but white space; give a .pdf, .txt or .md file with text"
        )
    return Document(name=name, text=text, pages=pages, sha256=hashlib.sha256(data).hexdigest())


def read_documents(paths: Iterable[str | Path]) -> list[Document]:
    """The documents of `paths`, in order. Raises at the first that cannot be read."""
    return [read_document(path) for path in paths]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DocumentError(
            f"no such file: {path}; check the path (relative paths start at {Path.cwd()})"
        ) from error
    except IsADirectoryError as error:
        raise DocumentError(
            f"{path} is a directory; name the files in it, for example {path}/*.pdf"
        ) from error
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}; check its permissions") from error


def _tile(texts: list[str]) -> tuple[str, tuple[Page, ...]]:
    """One text and its pages; every page but the last ends with a line end, which belongs to it."""
    pages: list[Page] = []
    pieces: list[str] = []
    at = 0
    for number, text in enumerate(texts, start=1):
        piece = text if number == len(texts) or text.endswith("\n") else text + "\n"
        pages.append(Page(number, at, at + len(piece)))
        pieces.append(piece)
        at += len(piece)
    return "".join(pieces), tuple(pages)


def _split_pages(text: str) -> tuple[str, tuple[Page, ...]]:
    """A text's pages between form feeds; a line end takes the place of each form feed."""
    pieces = without_running_lines(text.split("\f"), keep_length=True)
    return _tile([*(piece + "\n" for piece in pieces[:-1]), pieces[-1]])


def _cut_pages(text: str) -> tuple[Page, ...]:
    """Pages of about PAGE_CHARACTERS, cut after a line end, else after a space, else anywhere."""
    pages: list[Page] = []
    start = 0
    while start < len(text):
        end = start + PAGE_CHARACTERS
        if end >= len(text):
            end = len(text)
        else:
            cut = text.rfind("\n", start + PAGE_CHARACTERS // 2, end)
            cut = cut if cut >= 0 else text.rfind(" ", start + PAGE_CHARACTERS // 2, end)
            end = cut + 1 if cut >= 0 else end
        pages.append(Page(len(pages) + 1, start, end))
        start = end
    return tuple(pages)
