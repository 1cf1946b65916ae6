"""Loads what settings name: a model as an engine, and the sentence encoder where it can be had."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zerolayer.config import Settings
from zerolayer.errors import ModelError

if TYPE_CHECKING:
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.perception.dense import SentenceEncoder

_log = logging.getLogger(__name__)


def load_engine(settings: Settings) -> HFEngine:
    """The model that settings name, fetched first if need be. Raises ModelError, UnknownNameError."""
    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.engine import HFEngine
    from zerolayer.engines.hf.models import resolve_model

    path = resolve_model(settings.model)
    with quiet_transformers():
        return HFEngine.load(path, settings.device, settings.model)


def load_encoder(settings: Settings) -> SentenceEncoder | None:
    """The sentence encoder, or None when settings refuse it or it cannot be had (a warning says why)."""
    from zerolayer.engines.hf.conversion import quiet_transformers
    from zerolayer.engines.hf.models import resolve_encoder
    from zerolayer.perception.dense import SentenceEncoder

    if settings.encoder == "none":
        return None
    try:
        path = resolve_encoder()
    except ModelError as error:
        _log.warning("recall by words and attention only: %s", error)
        return None
    with quiet_transformers():
        return SentenceEncoder(path)
