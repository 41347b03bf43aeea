"""`rmqtx exporter`: metrics for Prometheus over HTTP."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import OptionalStoreArguments, RateOption, StoreOptions
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rmqtx_cli.exporter.schedule import Schedule

NAME = "exporter"
EXAMPLES = (
    Example("rmqtx exporter STORE", "of a store: http://127.0.0.1:9560/metrics"),
    Example("rmqtx exporter -n 10.0.0.1:9876 --interval 30s", "of live brokers, read every 30 seconds"),
    Example("rmqtx exporter STORE --listen 0.0.0.0:9560 --web-config web.yml", "with TLS and users, for a network"),
)
_ENDING = (signal.SIGTERM, signal.SIGINT)

ListenOption = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Address to serve on; :PORT is every address")
]
IntervalOption = Annotated[
    str, typer.Option("--interval", metavar="DURATION", help="Time from the start of one reading to the next")
]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="End a reading that takes longer; it counts as failed")
]
WebConfigOption = Annotated[
    Path | None,
    typer.Option("--web-config", metavar="FILE", help="YAML file with TLS and users, as node_exporter has it"),
]


@with_option_groups
def command(
    store: OptionalStoreArguments = None,
    *,
    listen: ListenOption = "127.0.0.1:9560",
    interval: IntervalOption = "60s",
    timeout: TimeoutOption = "5m",
    web_config: WebConfigOption = None,
    files: StoreOptions,
    rate: RateOption = None,
    live: LiveOptions,
) -> int:
    """Serve metrics of stores or live brokers for Prometheus, until it is stopped.

    Reads what check reads, one reading after the other, each in a process of its own. A scrape never reads a store: it
    gets the numbers of the last reading. If a reading fails, rmqtx_up is 0 and the numbers of stores are absent. A
    number of 0 that missing evidence may hide is absent too. /healthz answers 200 while readings begin and end.
    """
    from rmqtx_cli.exporter.reading import Request
    from rmqtx_cli.exporter.schedule import Schedule
    from rmqtx_cli.sources.source import chosen_opener

    voice = Voice()
    advice = "rmqtx exporter STORE, or rmqtx exporter -n HOST:PORT"
    chosen_opener(store or [], live, files, voice, advice, rate=rate)  # a wrong command line fails at once
    interval_ms, timeout_ms = parse_duration_ms(interval), parse_duration_ms(timeout)
    if interval_ms < 1000:
        raise BadRequest("--interval must be at least 1s")
    request = Request(store or [], live, files, rate)
    schedule = Schedule(request, interval_ms / 1000, timeout_ms / 1000, voice.note)
    _serve(schedule, listen, web_config, voice)
    return 0


def _serve(schedule: Schedule, listen: str, web_config_file: Path | None, voice: Voice) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    try:
        from rmqtx_cli.exporter.web import Server, parsed_address
    except ImportError:
        raise BadRequest(
            "the exporter needs the package prometheus-client", advice="pip install 'rmqtx[exporter]'"
        ) from None
    from rmqtx_cli.exporter.web_config import WebConfig, web_config

    config = WebConfig() if web_config_file is None else web_config(web_config_file)
    try:
        server = Server(parsed_address(listen), schedule, config)
    except OSError as error:
        raise BadRequest(f"cannot listen on {listen}: {error.strerror}", advice="use another --listen") from error
    # Blocked in all threads that start from here, the signals are left to sigwait: a handler would not end a wait of
    # this thread if the kernel gave the signal to another one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    schedule.start()
    thread = threading.Thread(target=server.serve_forever, name="web", daemon=True)
    thread.start()
    voice.note(f"metrics at {server.url}metrics")
    if not (server.is_local or config.demands_clients):
        voice.note("every client that reaches this address can read the metrics; --web-config FILE can demand users")
    signal.sigwait(_ENDING)
    schedule.stop()
    server.shutdown()
    server.server_close()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
