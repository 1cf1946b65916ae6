"""`zerolayer serve`: the service over HTTP, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import socket
import threading
import time
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from zerolayer import logs
from zerolayer.cli.options import build_settings, settings_options
from zerolayer.cli.output import note
from zerolayer.errors import SettingError

if TYPE_CHECKING:
    import uvicorn

    from zerolayer.config import Settings
    from zerolayer.server.http.options import HttpOptions
    from zerolayer.server.service import Service

STOP_S = 10
"""Answers that run when the server is told to stop have this long to end."""

IDLE_S = 75
"""A connection without a request is kept this long: longer than clients keep theirs."""

BACKLOG = 512
_LOOK_S = 0.2


@click.command()
@click.option("--host", help="Address to listen on; 0.0.0.0 is every one [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0 is any free one [default: 8765]")
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="KEY[=TENANT]",
    help="Let in who has this key; may be repeated. Other users of this machine can read command lines: better set "
    "ZEROLAYER_API_KEYS, with commas between keys.",
)
@click.option("--max-request-bytes", help="Largest body that is taken [default: 32MiB]")
@settings_options(
    "model", "device", "policy", "device_budget", "host_budget", "disk_budget", "codec", "encoder", "block_tokens",
    "attend_blocks",
)  # fmt: skip
@click.option("--arena-budget", "arena_budget", help="Device memory of all sessions together [default: 2GiB]")
@click.option("--max-waiting", type=click.IntRange(1), help="Turns that may wait [default: 64]")
@click.option("--max-output-tokens", type=click.IntRange(1), help="Longest answer, in tokens [default: 4096]")
@click.option(
    "--max-turns-per-key", type=click.IntRange(1), default=32, show_default=True,
    help="Where there are keys: turns of one tenant that may run and wait at once.",
)  # fmt: skip
@click.option("--tenant-disk-budget", help="Disk space of one tenant's sessions [default: all of it]")
@click.option(
    "--share-tenants",
    is_flag=True,
    help="Let tenants share what was computed for equal documents. How fast an answer comes then tells one tenant "
    "what another has asked about.",
)
def serve(
    api_keys: tuple[str, ...],
    max_turns_per_key: int,
    **flags: Any,
) -> int:
    """Serve the Messages API (and OpenAI's chat completions) until Ctrl-C.

    Applications of the Anthropic SDK need nothing but another base URL. /ready answers 200 once the model is loaded
    and warm; requests before that wait. --device-budget is one session's share, --arena-budget what all have together.
    Running answers may end when the server is told to stop; what was read and said is stored.
    """
    service_flags = {
        name: flags.pop(name)
        for name in (
            "arena_budget",
            "max_waiting",
            "max_output_tokens",
            "tenant_disk_budget",
            "share_tenants",
        )
    }
    settings = build_settings({**flags, "api_keys": ",".join(api_keys) or None})
    from zerolayer.engines.hf.models import resolve_model
    from zerolayer.server.service import Service

    options = http_options(settings, max_turns_per_key)
    service = Service(settings, _service_options(service_flags))
    with listen(settings.host, settings.port) as listening:
        # A model that cannot be had fails here; one that is not here yet is fetched here.
        resolve_model(settings.model, on_progress=note)
        server = _http_server(service, options)
        logs.include("uvicorn")
        warn_if_open(settings)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        port = listening.getsockname()[1]
        note(f"listening on http://{host}:{port}; loading {settings.model}; Ctrl-C stops")
        return _run(service, server, listening)


def _service_options(flags: dict[str, Any]) -> Any:
    from zerolayer.server.options import ServiceOptions

    names = {"arena_budget": "device_budget"}
    return ServiceOptions(
        **{names.get(name, name): value for name, value in flags.items() if value is not None}
    )


def http_options(settings: Settings, max_turns_per_key: int) -> HttpOptions:
    """The HTTP side's options: keys from settings, and names of this machine only where anybody may ask.

    Raises SettingError for a key that is none.
    """
    from zerolayer.config import parse_size
    from zerolayer.server.http.auth import Keys
    from zerolayer.server.http.options import HttpOptions

    keys = tuple(key.strip() for key in settings.api_keys.split(",") if key.strip())
    Keys(keys)
    return HttpOptions(
        api_keys=keys,
        max_request_bytes=parse_size(settings.max_request_bytes, "max request bytes"),
        max_turns_per_tenant=max_turns_per_key if keys else None,  # without keys all are one tenant
        local_only=is_local(settings.host) and not keys,
    )


def _http_server(service: Service, options: HttpOptions) -> uvicorn.Server:
    import uvicorn

    from zerolayer.server.http.app import create_app

    config = uvicorn.Config(
        create_app(service, options),
        log_config=None,  # uvicorn's own would write to stdout
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises SettingError where it cannot, before a model is loaded."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SettingError(
            f"cannot listen on {host} port {port}: {error.strerror}; give a free --port, and a --host of this machine"
        ) from error


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def warn_if_open(settings: Settings) -> None:
    """Say so where anybody on the network may use the server."""
    if not is_local(settings.host) and not settings.api_keys:
        note(
            f"warning: {settings.host} is open to the network and there is no API key: whoever reaches this port may "
            "use the model and read every session; set ZEROLAYER_API_KEYS, or listen on 127.0.0.1"
        )


def _run(service: Service, server: uvicorn.Server, listening: socket.socket) -> int:
    """Serve until a signal; returns the exit code: 0 for SIGTERM, 130 for Ctrl-C."""
    caught: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        server.should_exit = True

    # uvicorn raises the signals that it caught again when it has stopped: they must not end the process before the
    # service has stored its sessions.
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        service.start()
        threading.Thread(target=_say_when_ready, args=(service, server), daemon=True).start()
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # from here on a second Ctrl-C ends the process at once
        note("stopping; storing what was read and said")
        service.close()
    return 130 if signal.SIGINT in caught else 0


def _say_when_ready(service: Service, server: uvicorn.Server) -> None:
    started = time.monotonic()
    while not server.should_exit:
        if service.ready().ok:
            note(f"ready after {time.monotonic() - started:.1f} s")
            return
        time.sleep(_LOOK_S)
