"""One settings model: flag > environment (ZEROLAYER_*) > file (zerolayer.toml) > default.

Unknown settings fail. Sizes are bytes (`64MiB`) or, for the device, a share of the full KV (`10%`).
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from zerolayer.core import BLOCK_TOKENS
from zerolayer.errors import SettingError

SETTINGS_FILE = "zerolayer.toml"
"""In the working directory."""

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B?)\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


def parse_size(value: str | int, name: str = "size") -> int:
    """Bytes from `4096`, `64MiB`, `1.5 GB`. Raises SettingError for anything else, and for zero."""
    match = _SIZE.fullmatch(str(value))
    if match is None or match[2].upper() not in _UNITS:
        raise SettingError(f"{name} {value!r} is not a size; write bytes or a unit, such as 64MiB or 2GiB")
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    if size <= 0:
        raise SettingError(f"{name} {value!r} is zero; it must be at least one byte, such as 64MiB")
    return size


def parse_budget(value: str, full_bytes: int, name: str = "device budget") -> int:
    """Bytes of a budget that may also be a share (`10%`) of `full_bytes`."""
    share = _SHARE.fullmatch(value)
    if share is None:
        return parse_size(value, name)
    percent = float(share[1])
    if not 0 < percent <= 100:
        raise SettingError(f"{name} {value!r} is out of range; a share lies above 0% and at most at 100%")
    return int(full_bytes * percent / 100)


def cache_dir() -> Path:
    """The user's cache directory for models and sessions; `ZEROLAYER_HOME` or `home` in the file moves it."""
    home = os.environ.get("ZEROLAYER_HOME") or _home_in_file()
    if home:
        return Path(home)
    from platformdirs import user_cache_path

    return user_cache_path("zerolayer")


def _home_in_file() -> str | None:
    """`home` of zerolayer.toml, also for callers that never build `Settings`. Raises SettingError."""
    path = Path(SETTINGS_FILE)
    if not path.is_file():
        return None
    try:
        home = tomllib.loads(path.read_text(encoding="utf-8")).get("home")
    except ValueError as error:  # no TOML, or no UTF-8
        raise _bad_file(error) from error
    if home is not None and not isinstance(home, str):
        raise SettingError(f"home in {SETTINGS_FILE} has the value {home!r}; write a directory in quotes")
    return home


def _bad_file(error: ValueError) -> SettingError:
    return SettingError(f"{Path(SETTINGS_FILE).resolve()} is not valid TOML ({error}); correct or remove it")


class Settings(BaseSettings):
    """All settings of a session. Field names are the flag names with underscores."""

    model_config = SettingsConfigDict(
        env_prefix="ZEROLAYER_",
        toml_file=SETTINGS_FILE,
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
    )

    model: str = Field("smollm2", description="model name, Hugging Face id or path")
    device: str = Field("auto", description="torch device: auto, cpu, cuda, cuda:1, …")
    policy: str = Field("graded", description="who decides: a registered policy or module:Class")
    device_budget: str = Field("auto", description="device memory for KV: a size, a share of all KV, or auto")
    host_budget: str = Field("4GiB", description="host memory for compressed blocks")
    disk_budget: str = Field("16GiB", description="disk space for sessions")
    codec: str = Field("K8V4", description="how blocks are stored in the host and disk tiers")
    block_tokens: int = Field(BLOCK_TOKENS, ge=8, le=1024, description="tokens in a block")
    chunk_tokens: int = Field(512, ge=8, le=8192, description="tokens prefilled at a time")
    max_new_tokens: int = Field(96, ge=1, le=4096, description="longest answer, in tokens")
    attend_blocks: int = Field(
        24, ge=1, le=1024, description="most blocks that an answer sees beside the sinks"
    )
    encoder: Literal["auto", "none"] = Field(
        "auto", description="sentence vectors for recall where they can be had"
    )
    knit_share: float = Field(
        0.17, ge=0.0, le=1.0, description="most of the tokens in sight recomputed together for a question"
    )
    knit_match: float = Field(
        0.8, ge=0.0, le=1.0, description="of these, only blocks that match this well; the best one has 1"
    )
    heatmap_side: int = Field(256, description="cells on each side of the heat map; 4 is the small one")
    pin_blocks: int = Field(
        2, ge=0, le=64, description="blocks of the hottest bank pinned in the fastest cache"
    )
    early_share: float = Field(
        0.25, ge=0.0, le=1.0, description="most unread tokens computed early for questions; 0 reads first"
    )
    seed: int = Field(0, ge=0, description="seed of everything random")
    home: str | None = Field(None, description="directory for models and sessions")
    host: str = Field("127.0.0.1", description="address that the server listens on")
    port: int = Field(8765, ge=0, le=65535, description="port that the server listens on; 0: any free one")
    api_keys: str = Field(
        "", repr=False, description="keys of the server, KEY or KEY=TENANT, commas between them"
    )
    max_request_bytes: str = Field("32MiB", description="largest body that the server takes")

    @field_validator("host_budget", "disk_budget", "max_request_bytes")
    @classmethod
    def _size(cls, value: str, info: ValidationInfo) -> str:
        parse_size(value, info.field_name or "size")
        return value

    @field_validator("heatmap_side")
    @classmethod
    def _side(cls, value: int) -> int:
        if not 2 <= value <= 1024 or value & (value - 1):
            raise SettingError(
                f"heatmap_side is {value}; it must be a power of two from 2 to 1024: 256 is the default, 4 small"
            )
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**flags: Any) -> Settings:
    """Settings with `flags` on top (None: not given). Raises SettingError naming field, value and fix."""
    known = {f"ZEROLAYER_{name.upper()}" for name in Settings.model_fields}
    unknown = sorted(v for v in os.environ if v.startswith("ZEROLAYER_") and v not in known)
    if unknown:
        raise SettingError(
            f"unknown setting {unknown[0]} in the environment; known: {', '.join(sorted(known))}"
        )
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _bad_file(error) from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise SettingError(
            f"setting {name!r} has the value {first.get('input')!r}: {first['msg']}; "
            f"known settings: {', '.join(sorted(Settings.model_fields))}"
        ) from error
