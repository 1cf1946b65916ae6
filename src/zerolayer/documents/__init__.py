"""PDF and text to pages, clauses, sentences and typed anchors. Knows nothing of models."""

from zerolayer.documents.anchors import Anchor, AnchorIndex, AnchorKind, find_anchors
from zerolayer.documents.document import Document, Page
from zerolayer.documents.reader import read_document, read_documents

__all__ = [
    "Anchor",
    "AnchorIndex",
    "AnchorKind",
    "Document",
    "Page",
    "find_anchors",
    "read_document",
    "read_documents",
]
