"""`rmqtx redeliver`: what it refuses before it asks a broker."""

from __future__ import annotations

from rmqtx.readers.model.exit_status import USAGE
from tests.cli.conftest import Run

LIVE = ("-n", "127.0.0.1:1")


def test_it_needs_a_reason_a_broker_and_files_for_options_of_files(rmqtx: Run) -> None:
    many = [f"ORDER-{number}" for number in range(21)]
    because = ("--reason", "paid")
    for words, why in (
        (("ID", *LIVE), "redeliver needs --reason TEXT"),
        (("ID", *LIVE, "--reason", " "), "--reason is empty"),
        (("ID", *because), "no live broker given"),
        (("ID", *because, "--store", "store"), "no live broker given"),
        (("ID", *LIVE, *because, "--as-half"), "need --store STORE"),
        (("ID", *LIVE, *because, "--to-broker", "a"), "need --store STORE"),
        (("ID", *LIVE, *because, "--broker-version", "5.3.3"), "need --store STORE"),
        ((*many, *LIVE, *because), "more than 20 need a plan"),
        ((*many, *LIVE, *because, "--store", "store"), "give at most 20 in a command"),
        (("ID", *LIVE, *because, "--override", "cannot-be-sent"), "cannot be overridden"),
    ):
        result = rmqtx("redeliver", *words)
        assert (result.status, why in result.err) == (USAGE, True), result.err


def test_a_plan_of_redeliveries_names_its_transactions(rmqtx: Run) -> None:
    result = rmqtx("plan", "redeliver", "--all", "--store", "s", "--reason", "paid", "-o", "plan.json")
    assert result.status == USAGE
    assert "redeliver needs ids" in result.err
