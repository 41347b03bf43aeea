"""The Helm chart of deploy/: its values fit its schema, and what it renders can run."""

from __future__ import annotations

import json
import subprocess
import tomllib
from typing import Any

import pytest
import typer
import yaml

from rmqtx_cli.main import app
from tests.cli.test_deployed import DEPLOY, ROOT, containers, need

CHART = DEPLOY / "chart"
ALL = "check.enabled=true,check.store.claim=a,audit.enabled=true,audit.store.claim=a,audit.output=b,exporter.secret=c"


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """What helm prints."""
    return subprocess.run(["helm", *words], cwd=DEPLOY, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rendered() -> list[Any]:
    need("helm")
    done = helm("template", "mq", "chart", "--kube-version", "1.30.0", "--set", ALL)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_it_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_schema_takes_the_values_and_refuses_jobs_without_a_store() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    validator = pytest.importorskip("jsonschema").Draft7Validator(schema)
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    assert list(validator.iter_errors(values)) == []
    for job in ("check", "audit"):
        assert not validator.is_valid({**values, job: {**values[job], "enabled": True}})
    assert not validator.is_valid({**values, "exporter": {**values["exporter"], "nameServer": "a:1"}})


def test_the_values_name_commands_of_the_program() -> None:
    """Without helm too: an option that moves to another command must move here."""
    root = typer.main.get_command(app)
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    given = [job["arguments"] for job in values.values() if isinstance(job, dict) and job.get("arguments")]
    assert len(given) > 1
    for name, *words in given:
        root.commands[name].make_context("rmqtx", words)  # type: ignore[attr-defined]


def test_what_it_renders_may_write_nothing_and_has_commands_of_the_program(rendered: list[Any]) -> None:
    found = [container for document in rendered for container in containers(document)]
    assert [one["name"] for one in found] == ["exporter", "check", "audit"]
    root = typer.main.get_command(app)
    for container in found:
        context = container["securityContext"]
        assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
        assert all(mount.get("readOnly") for mount in container["volumeMounts"] if mount["mountPath"] == "/store")
        name, *words = container["args"]
        root.commands[name].make_context("rmqtx", words)  # type: ignore[attr-defined]


def test_kubernetes_takes_what_it_renders(rendered: list[Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (PyPI)").validate
    for document in rendered:
        validate(document, "1.30", strict=True)


def test_helm_finds_nothing_wrong() -> None:
    need("helm")
    done = helm("lint", "--strict", "chart", "--set", ALL)
    assert done.returncode == 0, done.stdout
