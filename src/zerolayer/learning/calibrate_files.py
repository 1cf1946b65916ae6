"""Where calibrations lie: those that are shipped, and the user's own, which go first.

A file is JSON: `models`, a list of fits (`PersistenceModel.to_json`), and `recipe`, the command that rebuilds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from zerolayer.config import cache_dir
from zerolayer.decision.persistence import PersistenceModel
from zerolayer.errors import SettingError
from zerolayer.learning.traces import DemandTrace
from zerolayer.perception.block_features import language_of


def user_file() -> Path:
    """The file that `zerolayer calibrate` writes and every session reads."""
    return cache_dir() / "calibration" / "persistence.json"


def shipped_models() -> list[PersistenceModel]:
    """The fits that come with the package."""
    text = files("zerolayer.decision").joinpath("data/persistence.json").read_text(encoding="utf-8")
    return [PersistenceModel.from_json(record) for record in json.loads(text)["models"]]


def user_models(path: Path | None = None) -> list[PersistenceModel]:
    """The user's own fits; none where there is no file. Raises SettingError for a file that holds none."""
    path = path or user_file()
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["models"]
        return [PersistenceModel.from_json(record) for record in records]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, SettingError) as error:
        raise SettingError(f"{path} is no calibration ({error}); delete it, or calibrate again") from error


def write_models(path: Path, models: Iterable[PersistenceModel], recipe: str) -> None:
    """Write a file of fits; it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    record = {"recipe": recipe, "models": [model.to_json() for model in models]}
    partial.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def keep_model(model: PersistenceModel, recipe: str, path: Path | None = None) -> Path:
    """Put a fit into the user's file, in place of the one for the same model and language."""
    path = path or user_file()
    key = (model.fingerprint, model.language)
    others = [known for known in user_models(path) if (known.fingerprint, known.language) != key]
    write_models(path, [*others, model], recipe)
    return path


def choose(models: Sequence[PersistenceModel], fingerprint: str, language: str) -> PersistenceModel | None:
    """The first fit for the language and this very model, else for the language and any model."""
    for wanted in (fingerprint, ""):
        for model in models:
            if (model.fingerprint, model.language) == (wanted, language):
                return model
    return None


def persistence_for(fingerprint: str, language: str) -> PersistenceModel | None:
    """What grades a session: the user's own fit, else a shipped one that is meant to grade, else None."""
    shipped = [model for model in shipped_models() if model.notes.get("grades")]
    return choose(user_models(), fingerprint, language) or choose(shipped, fingerprint, language)


def calibration_of(trace: DemandTrace) -> PersistenceModel | None:
    """What would grade a live session of the trace's model, in the language of its questions."""
    return persistence_for(trace.model, language_of(" ".join(turn.question for turn in trace.turns)))
