"""Settings: where they come from, what is refused and how, and where the cache lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolayer.config import Settings, cache_dir, load_settings
from zerolayer.errors import SettingError


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZEROLAYER_HOME", raising=False)


def write_file(text: str) -> None:
    Path("zerolayer.toml").write_text(text, encoding="utf-8")


def test_flag_beats_environment_beats_file(monkeypatch):
    write_file("attend_blocks = 8\nblock_tokens = 32\nseed = 1\n")
    monkeypatch.setenv("ZEROLAYER_BLOCK_TOKENS", "16")
    monkeypatch.setenv("ZEROLAYER_SEED", "2")
    settings = load_settings(seed=3, codec=None)
    assert (settings.attend_blocks, settings.block_tokens, settings.seed) == (8, 16, 3)
    assert settings.codec == "K8V4"


@pytest.mark.parametrize("name", ["host_budget", "disk_budget"])
@pytest.mark.parametrize(("value", "reason"), [("0", "is zero"), ("much", "is not a size")])
def test_bad_budget_names_its_setting(name, value, reason):
    with pytest.raises(SettingError, match=f"{name} '{value}' {reason}"):
        load_settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attend_blocks", 0),
        ("attend_blocks", 1025),
        ("block_tokens", 7),
        ("encoder", "bert"),
        ("knit_share", 2),
    ],
)
def test_value_out_of_range_names_its_setting(name, value):
    with pytest.raises(SettingError, match=f"setting '{name}' has the value {value!r}"):
        load_settings(**{name: value})


class TestHome:
    def test_default_is_the_users_cache(self):
        assert cache_dir().name == "zerolayer"

    def test_file_moves_the_cache(self):
        write_file("home = 'store'\n")
        assert cache_dir() == Path("store")

    def test_environment_beats_file(self, monkeypatch):
        write_file("home = 'store'\n")
        monkeypatch.setenv("ZEROLAYER_HOME", "elsewhere")
        assert cache_dir() == Path("elsewhere")

    def test_home_of_a_wrong_type(self):
        write_file("home = 3\n")
        with pytest.raises(SettingError, match=r"home in zerolayer\.toml has the value 3; write a directory"):
            cache_dir()

    @pytest.mark.parametrize("data", [b"home = \n", b"home = '\xff'\n"])
    @pytest.mark.parametrize("reader", [cache_dir, load_settings])
    def test_file_that_is_no_toml(self, data, reader):
        Path("zerolayer.toml").write_bytes(data)
        with pytest.raises(SettingError, match=r"zerolayer\.toml is not valid TOML .*correct or remove it"):
            reader()


def test_help_tells_the_true_defaults():
    """Help texts are written out, since importing the settings costs more than all of --help may."""
    from zerolayer.cli.options import _SETTINGS

    for name, (_, text) in _SETTINGS.items():
        assert f"[default: {Settings.model_fields[name].default}]" in text
