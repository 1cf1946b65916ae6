"""Reading files, and every way in which a file can be bad."""

import codecs
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from zerolayer.documents import read_document, read_documents
from zerolayer.documents.normalise import normalise
from zerolayer.documents.reader import PAGE_CHARACTERS
from zerolayer.errors import (
    DamagedDocumentError,
    DocumentError,
    EmptyDocumentError,
    EncodingError,
    EncryptedDocumentError,
    ScannedDocumentError,
)

CHINESE = "第一条 甲方应当按照本合同的约定支付价款。\n第二条 乙方应当在三十日内交付货物。\n"


def make_pdf(path: Path, pages: list[str], encrypt: str | None = None) -> Path:
    canvas = Canvas(str(path), encrypt=encrypt, invariant=1)
    for text in pages:
        for row, line in enumerate(text.split("\n")):
            canvas.drawString(72, 760 - 14 * row, line)
        if not text:
            canvas.rect(100, 100, 200, 200, fill=1)
        canvas.showPage()
    canvas.save()
    return path


def test_pdf_pages_tile_the_text(tmp_path):
    document = read_document(make_pdf(tmp_path / "a.pdf", ["First page.", "Second page.", "Third page."]))
    assert [page.number for page in document.pages] == [1, 2, 3]
    assert "".join(document.text[p.char_start : p.char_end] for p in document.pages) == document.text
    assert document.page_at(document.text.index("Second")) == 2
    assert document.pages_of(document.text.index("First"), document.text.index("Third") + 1) == (1, 2, 3)
    assert "\r" not in document.text


def test_pdf_with_a_blank_page_says_which(tmp_path):
    document = read_document(
        make_pdf(tmp_path / "a.pdf", ["A page with words on it.", "", "Another one with words."])
    )
    assert document.pages_without_text == (2,)


def test_pdf_under_another_name_is_still_a_pdf(tmp_path):
    path = make_pdf(tmp_path / "a.pdf", ["Some words."])
    assert "Some words." in read_document(path.rename(tmp_path / "a.bin")).text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_text_encodings_read_the_same(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(CHINESE.encode(encoding))
    assert read_document(path).text == CHINESE


def test_text_pages_are_cut_at_line_ends(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("\n".join(f"Line {n} of a long file." for n in range(1000)), encoding="utf-8")
    document = read_document(path)
    assert len(document.pages) > 5
    for page in document.pages[:-1]:
        assert document.text[page.char_end - 1] == "\n"
        assert PAGE_CHARACTERS // 2 < page.char_end - page.char_start <= PAGE_CHARACTERS
    assert document.pages[-1].char_end == len(document.text)


def test_form_feeds_are_pages(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ftwo\fthree", encoding="utf-8")
    document = read_document(path)
    assert len(document.pages) == 3
    assert document.page_at(document.text.index("two")) == 2


def test_the_same_bytes_have_the_same_sha256(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("same", encoding="utf-8")
    first, second = read_documents([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert first.sha256 == second.sha256 and first.name != second.name


def test_normalise_keeps_true_hyphens_and_joins_cut_words():
    text = "A non-compete clause. The confidential non-\ncompete and the confi-\ndential part\x00.\r\nEnd"
    assert (
        normalise(text)
        == "A non-compete clause. The confidential non-compete and the confidential part.\nEnd"
    )
    assert normalise("Non\ufffeCompetition") == "Non-Competition"


def bad_files(tmp_path: Path) -> dict[str, tuple[Path, type[DocumentError], str]]:
    def write(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    whole = make_pdf(tmp_path / "whole.pdf", ["words " * 10] * 30).read_bytes()
    locked = make_pdf(tmp_path / "locked.pdf", ["secret words"], encrypt="word")
    scan = make_pdf(tmp_path / "scan.pdf", ["", ""])
    folder = tmp_path / "folder"
    folder.mkdir()
    return {
        "scanned": (scan, ScannedDocumentError, "ocrmypdf"),
        "encrypted": (locked, EncryptedDocumentError, "qpdf --decrypt"),
        "truncated": (write("cut.pdf", whole[: len(whole) // 2]), DamagedDocumentError, "incomplete"),
        "not a pdf": (write("fake.pdf", b"hello world"), DamagedDocumentError, "%PDF-"),
        "garbage": (write("junk.pdf", b"%PDF-1.4\nx\nstartxref\n9\n%%EOF"), DamagedDocumentError, "parsed"),
        "empty": (write("empty.txt", b""), EmptyDocumentError, "0 bytes"),
        "blank": (write("blank.txt", "\ufeff \n".encode()), EmptyDocumentError, "white space"),
        "latin": (write("latin.txt", "Äpfel für 5 £ kämen später".encode("latin-1")), EncodingError, "iconv"),
        "cut utf-16": (write("cut.txt", codecs.BOM_UTF16_LE + b"a\x00b"), EncodingError, "UTF-16"),
        "binary": (write("binary.dat", b"\x00\x01" * 200), EncodingError, "NUL"),
        "missing": (tmp_path / "nothing.txt", DocumentError, "no such file"),
        "directory": (folder, DocumentError, "directory"),
    }


@pytest.mark.parametrize(
    "case",
    ["scanned", "encrypted", "truncated", "not a pdf", "garbage", "empty", "blank", "latin", "cut utf-16",
     "binary", "missing", "directory"],
)  # fmt: skip
def test_bad_files_get_their_own_error(tmp_path, case):
    path, kind, words = bad_files(tmp_path)[case]
    with pytest.raises(kind) as caught:
        read_document(path)
    assert type(caught.value) is kind
    assert path.name in str(caught.value) and words in str(caught.value)


@pytest.mark.data
def test_real_pdfs(shared_data):
    english = read_document(shared_data / "pdfs" / "en_goosehead_franchise_115p.pdf")
    assert len(english.pages) == 115 and len(english.text) > 290_000
    start = english.text.index("13.3.5 ")
    assert english.clause_at(start + 200) == "13.3.5"
    chinese = read_document(shared_data / "pdfs" / "zh_civil_code_141p.pdf")
    assert len({h.label for h in chinese.headings}) == 1260
