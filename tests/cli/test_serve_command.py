"""`zerolayer serve` before a model is loaded; with one, it is in tests/server/test_http_real.py."""

from __future__ import annotations

import socket

import pytest
from click.testing import CliRunner

from zerolayer.cli.main import cli
from zerolayer.cli.serve import http_options, is_local, warn_if_open
from zerolayer.config import load_settings


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("ZEROLAYER_API_KEYS", "ZEROLAYER_HOST", "ZEROLAYER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.7", False),
        ("example.org", False),
    ],
)
def test_what_is_local(host, local):
    assert is_local(host) is local


def test_warns_when_open_to_the_network_without_a_key(capsys, monkeypatch):
    warn_if_open(load_settings(host="0.0.0.0"))
    said = capsys.readouterr()
    assert "warning: 0.0.0.0 is open" in said.err and "ZEROLAYER_API_KEYS" in said.err and not said.out
    warn_if_open(load_settings())
    warn_if_open(load_settings(host="0.0.0.0", api_keys="k"))
    monkeypatch.setenv("ZEROLAYER_API_KEYS", "k1=acme,k2")
    warn_if_open(load_settings(host="0.0.0.0"))
    assert not capsys.readouterr().err


def test_keys_of_the_environment_and_who_may_ask_without(monkeypatch):
    alone = http_options(load_settings(), 4)
    assert alone.local_only and alone.max_turns_per_tenant is None
    assert not http_options(load_settings(host="0.0.0.0"), 4).local_only
    monkeypatch.setenv("ZEROLAYER_API_KEYS", "k1=acme, k2,")
    options = http_options(load_settings(max_request_bytes="1MiB"), 4)
    assert options.api_keys == ("k1=acme", "k2") and not options.local_only
    assert (options.max_request_bytes, options.max_turns_per_tenant) == (1 << 20, 4)


def test_keys_are_not_shown():
    assert "geheim" not in repr(load_settings(api_keys="geheim"))


def test_a_port_that_is_taken_fails_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(cli, ["serve", "--port", port])
    assert result.exit_code == 2 and f"cannot listen on 127.0.0.1 port {port}" in result.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--port", "70000"], "port"),
        (["--max-request-bytes", "much"], "max_request_bytes"),
        (["--policy", "nobody"], "unknown policy"),
        (["--model", "nobody", "--port", "0"], "unknown model 'nobody'"),
        (["--api-key", "a b", "--port", "0"], "API key 1"),
    ],
)
def test_a_wrong_value_is_a_usage_error(flags, said):
    result = CliRunner().invoke(cli, ["serve", *flags])
    assert result.exit_code == 2 and said in result.stderr
