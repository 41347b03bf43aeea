"""`rmqtx exporter`: metrics for Prometheus over HTTP."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands.declared.watch import ExporterCommand
from rmqtx_cli.exporter.reading import Request
from rmqtx_cli.exporter.schedule import Schedule
from rmqtx_cli.exporter.web import WebConfig, web_config
from rmqtx_cli.sources.source import AskedSource, chosen_opener
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import parse_duration_ms

_ENDING = (signal.SIGTERM, signal.SIGINT)


def run(options: ExporterCommand) -> int:
    """Run the command; return its exit status."""
    voice = Voice()
    advice = "rmqtx exporter STORE, or rmqtx exporter -n HOST:PORT"
    source = AskedSource(options.store or [], options.live, options.files, options.rate)
    chosen_opener(source, voice, advice)  # a wrong command line fails at once
    interval_ms, timeout_ms = parse_duration_ms(options.interval), parse_duration_ms(options.timeout)
    if interval_ms < 1000:
        raise BadRequest("--interval must be at least 1s")
    schedule = Schedule(Request(source), interval_ms / 1000, timeout_ms / 1000, voice.note)
    _serve(schedule, options.listen, options.web_config, voice)
    return 0


def _serve(schedule: Schedule, listen: str, web_config_file: Path | None, voice: Voice) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    try:
        from rmqtx_cli.exporter.web import Server, parsed_address
    except ImportError:
        raise BadRequest(
            "the exporter needs the package prometheus-client", advice="pip install 'rmqtx[exporter]'"
        ) from None
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
