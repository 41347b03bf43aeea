"""`apply --require-approval`: a signature by another person, made and verified by the real ssh-keygen."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, INTERRUPTED, REFUSED_BY_GUARD, UNREADABLE
from rmqtx.repairs.plans.approval import people
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import whoever
from tests.cli.conftest import Run
from tests.cli.test_apply_course import acts_at, interrupt, medium, plan  # noqa: F401 -- fixtures
from tests.repairs.forge import FakeMedium

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
_FIELDS = ("--yes", "--require-approval")


class Signers:
    """Keys of people, and the file that allows them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.allowed = directory / "signers"

    def add(self, name: str, *, principal: str | None = None, key: str | None = None) -> None:
        """Make a key, and allow it for a name."""
        file = self.directory / (key or name)
        if not file.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
        public = file.with_name(f"{file.name}.pub").read_text()
        with self.allowed.open("a") as stream:
            stream.write(f"{principal or name} {public}")

    def sign(self, name: str, file: Path, namespace: str = "rmqtx-plan") -> None:
        """Sign a file, as the message of the refusal advises."""
        file.with_name(f"{file.name}.sig").unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(self.directory / name), "-n", namespace, str(file)]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def signers(tmp_path: Path) -> Signers:
    found = Signers(tmp_path)
    found.add("giulia", principal="giulia@shop")
    return found


def refused(rmqtx: Run, file: Path, allowed: Path, medium: FakeMedium) -> str:  # noqa: F811
    """The one line of a refusal; nothing was sent."""
    result = rmqtx("apply", file, *_FIELDS, allowed)
    assert (result.status, result.err.count("\n"), result.out) == (REFUSED_BY_GUARD, 1, ""), result.err
    assert (medium.acts, Journal().read().receipts) == ([], [])
    return result.err


def test_who_wrote_approved_and_applied_is_in_the_receipts(
    rmqtx: Run, medium: FakeMedium, plan: Path, signers: Signers  # noqa: F811
) -> None:
    signers.sign("giulia", plan)
    result = rmqtx("apply", plan, *_FIELDS, signers.allowed, "--format", "jsonl")
    assert result.status == DONE, result.err
    for row in map(json.loads, result.out.splitlines()):
        assert row["plan"]["approved_by"].startswith("giulia@shop with ED25519 key SHA256:")
        assert row["plan"]["written_by"] == ", ".join(sorted({"me", whoever()}))
        assert row["who"] == whoever()
    assert len(medium.acts) == 12
    printed = rmqtx("receipts", "--plan", plan).err
    assert f"written by {', '.join(sorted({'me', whoever()}))}; approved by giulia@shop with ED25519 key " in printed
    assert f"; applied by {whoever()}" in printed
    page = rmqtx("receipts", Journal().read().receipts[0].receipt_id).out
    assert "\napproved by giulia@shop with ED25519 key SHA256:" in page


def test_the_run_that_finishes_an_approved_one_needs_the_approval_too(
    rmqtx: Run, medium: FakeMedium, plan: Path, signers: Signers  # noqa: F811
) -> None:
    signers.sign("giulia", plan)
    medium.on_act = acts_at(3, interrupt)
    first = rmqtx("apply", plan, *_FIELDS, signers.allowed)
    assert first.status == INTERRUPTED
    assert f"apply {plan} -n HOST:PORT --require-approval {signers.allowed} --continue" in first.err


def test_what_is_not_approved_is_refused_with_one_line(
    rmqtx: Run, medium: FakeMedium, plan: Path, signers: Signers  # noqa: F811
) -> None:
    printed = refused(rmqtx, plan, signers.allowed, medium)
    assert f"{plan.name} is not approved" in printed
    assert f"ssh-keygen -Y sign -f KEY -n rmqtx-plan {plan}" in printed

    signers.sign("giulia", plan, namespace="git")
    assert "namespace does not match" in refused(rmqtx, plan, signers.allowed, medium)

    signers.add("stranger")
    signers.allowed.write_text("".join(signers.allowed.read_text().splitlines(keepends=True)[:1]))
    signers.sign("stranger", plan)
    assert "No principal matched" in refused(rmqtx, plan, signers.allowed, medium)

    signers.sign("giulia", plan)
    plan.write_text(plan.read_text().replace('"action": "commit"', '"action": "rollback"'))
    printed = refused(rmqtx, plan, signers.allowed, medium)
    assert "does not approve" in printed
    assert "was the plan altered after giulia@shop signed it" in printed

    plan.with_name("plan.json.sig").write_text("no signature\x1b[31m")
    assert "is not by a key of" in refused(rmqtx, plan, signers.allowed, medium)


@pytest.mark.parametrize("principal", ["me@elsewhere", "ME", "giulia@shop,me", "*@shop"])
def test_the_author_approves_nothing(
    rmqtx: Run, medium: FakeMedium, plan: Path, signers: Signers, principal: str  # noqa: F811
) -> None:
    signers.add("other", principal=principal)
    signers.sign("other", plan)
    printed = refused(rmqtx, plan, signers.allowed, medium)
    assert ("an author of the plan" in printed) is (principal != "*@shop")


def test_one_key_with_two_names_is_one_person(
    rmqtx: Run, medium: FakeMedium, plan: Path, signers: Signers  # noqa: F811
) -> None:
    signers.add("giulia", principal="me@shop")
    signers.sign("giulia", plan)
    assert "an author of the plan" in refused(rmqtx, plan, signers.allowed, medium)


def test_a_plan_without_an_author_cannot_be_approved(
    rmqtx: Run, medium: FakeMedium, plan: Path, signers: Signers  # noqa: F811
) -> None:
    values = json.loads(plan.read_text())
    del values["made_from"]["written_by"]
    plan.write_text(json.dumps(values))
    signers.sign("giulia", plan)
    assert "does not name its author" in refused(rmqtx, plan, signers.allowed, medium)


def test_without_ssh_keygen_that_is_the_error(
    rmqtx: Run, medium: FakeMedium, plan: Path, signers: Signers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path  # noqa: F811
) -> None:
    signers.sign("giulia", plan)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "ssh-keygen was not found - install OpenSSH" in refused(rmqtx, plan, signers.allowed, medium)


def test_a_file_of_keys_that_cannot_be_read_is_an_error(
    rmqtx: Run, medium: FakeMedium, plan: Path, tmp_path: Path  # noqa: F811
) -> None:
    result = rmqtx("apply", plan, *_FIELDS, tmp_path / "none")
    assert (result.status, result.err.count("\n"), medium.acts) == (UNREADABLE, 1, [])


def test_people() -> None:
    assert people(["root@vm (sudo by Paolo)", "giulia@shop"]) == {"root", "paolo", "giulia"}
