"""The files of deploy/ and docs/monitoring.md: command lines, metrics and labels are those of the program."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from rmqtx_cli.main import app
from rmqtx_cli.monitoring.metrics import BY_NAME, METRICS
from tests.cli.conftest import Run
from tests.pages.monitoring_pages import filled

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "monitoring.md"
RULES = (DEPLOY / "prometheus" / "rmqtx.rules.yml").read_text("utf-8")
DASHBOARD: Any = json.loads((DEPLOY / "grafana" / "rmqtx.json").read_text("utf-8"))
FILES = [  # without what a release is built with, and without the templates of the chart
    file for file in sorted(DEPLOY.rglob("*"))
    if file.is_file() and not {"release", "chart"} & set(file.relative_to(DEPLOY).parts)
]
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
MANIFESTS = [
    document for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text("utf-8"))
]


def need(program: str) -> None:
    """Skip without a program."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on the PATH")


def containers(part: Any) -> Iterator[dict[str, Any]]:
    """The containers of a manifest."""
    if isinstance(part, dict):
        yield from part.get("containers", [])
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from containers(one)


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Each command line of rmqtx: its file, and its words."""
    for file in [PAGE, *FILES]:
        text = file.read_text("utf-8").replace("\\\n", " ").replace("\\%", "%")
        code = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)) if file.suffix == ".md" else text
        for line in code.splitlines():
            # A path to the program, or the program after the user of a line of cron, or at the begin of a line.
            if found := re.search(r"(?:/bin/rmqtx|^rmqtx|\srmqtx {2}rmqtx) (?!/)(.*)", line):
                words = re.split(r"\s*(?:[>|;]|&&|\s#\s)\s*", found[1].replace("$(date +%F)", "D"))[0]
                words = re.sub(r"'?\$(?:ARG)?(\d)\$?'?", lambda match: f"{match[1]}0m", words)
                yield file.name, shlex.split(words)
    for document in MANIFESTS:
        for container in containers(document):
            yield "kubernetes", container["args"]


def test_command_lines_are_those_of_the_program() -> None:
    root = typer.main.get_command(app)
    found = list(command_lines())
    for name, words in found:
        command = root.commands.get(words[0])  # type: ignore[attr-defined]
        assert command is not None, (name, words)
        command.make_context("rmqtx", words[1:])
    assert {"rmqtx-exporter.service", "rmqtx-check.service", "rmqtx", "rmqtx.cfg", "rmqtx.conf", "kubernetes",
            "monitoring.md"} <= {name for name, _ in found}


def test_metrics_and_labels_are_declared() -> None:
    declared = {label for metric in METRICS for label in metric.labels} | {"job", "instance"}
    recorded = set(re.findall(r"record: (\S+)", RULES))
    rules = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
    expressions = [*EXPRESSIONS, *(rule["expr"] for rule in rules)]
    used = {name for expression in expressions for name in re.findall(r"\brmqtx_[a-z_]+", expression)}
    assert used <= BY_NAME.keys()
    assert len(used) > 20
    for expression in expressions:
        assert set(re.findall(r"\brmqtx:[a-z_]+", expression)) <= recorded
        grouped = re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", expression)
        assert {label for text in grouped for label in re.split(r",\s*|\s+", text) if label} <= declared, expression
    legends = " ".join(target.get("legendFormat", "") for panel in DASHBOARD["panels"] for target in panel["targets"])
    assert {*re.findall(r"\$labels\.(\w+)", RULES), *re.findall(r"\{\{(\w+)\}\}", legends)} <= declared


def test_the_page_has_the_declared_metrics() -> None:
    text = PAGE.read_text("utf-8")
    assert filled(text) == text, "make man"


def test_each_file_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    left = [
        file.name for file in FILES
        if file.name != "mkdocs.yml" and file.name not in text and file.suffix not in text
    ]
    assert left == []


def test_prometheus_takes_the_rules_and_their_unit_tests_pass() -> None:
    need("promtool")
    for words in (["check", "config", "prometheus.yml"], ["test", "rules", "rmqtx.rules.test.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_unit_test() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", RULES))
    tested = set()
    for group in yaml.safe_load((DEPLOY / "prometheus" / "rmqtx.rules.test.yml").read_text("utf-8"))["tests"]:
        tested |= {one["alertname"] for one in group["alert_rule_test"] if one.get("exp_alerts")}
    assert alerts == tested


def test_promtool_takes_a_textfile(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    need("promtool")
    file = tmp_path / "rmqtx.prom"
    rmqtx("check", common, "--textfile", file, "--state-dir", tmp_path)
    done = subprocess.run(["promtool", "check", "metrics"], input=file.read_bytes(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert set(re.findall("^# TYPE (\\S+)", file.read_text("utf-8"), re.MULTILINE)) <= BY_NAME.keys()


@pytest.mark.slow
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    need("systemd-analyze")
    names = [file.name for file in (DEPLOY / "systemd").iterdir()]
    for name in names:
        text = (DEPLOY / "systemd" / name).read_text("utf-8").replace("/usr/local/bin/rmqtx", sys.executable)
        (tmp_path / name).write_text(re.sub("Documentation=.*\n", "", text))  # man may be missing here
    done = subprocess.run(
        ["systemd-analyze", "verify", *(f"./{name}" for name in names)], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for name in names:
        if name.endswith(".service"):
            words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", f"./{name}"]
            exposed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert exposed.returncode == 0, exposed.stdout


def test_kubernetes_takes_the_manifests() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (PyPI)").validate
    for document in MANIFESTS:
        validate(document, "1.30", strict=True)


def test_containers_may_write_nothing() -> None:
    found = [container for document in MANIFESTS for container in containers(document)]
    assert len(found) == 2
    for container in found:
        context = container["securityContext"]
        assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert all(mount.get("readOnly") for mount in container["volumeMounts"] if mount["mountPath"] == "/store")


def plugin(*words: str) -> subprocess.CompletedProcess[str]:
    """What `kubectl rmqtx` prints."""
    file = DEPLOY / "kubernetes" / "kubectl-rmqtx"
    return subprocess.run([file, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([], ["pending", "/proc/1/root/home/rocketmq/store"]),
        (["-s", "/data/a b", "--", "audit", "{}", "--where", "topic = 'a'"],
         ["audit", "/proc/1/root/data/a b", "--where", "topic = 'a'"]),
    ],
)
def test_the_plugin_prints_a_command_that_a_shell_reads_back(words: list[str], command: list[str]) -> None:
    done = plugin("broker-a-0", "-n", "mq", "--user", "7", "--dry-run", *words)
    comment, line = done.stdout.splitlines()
    profile = json.loads(comment.removeprefix("# PROFILE.json: "))
    assert profile["securityContext"] == {"runAsUser": 7, "runAsGroup": 7, "runAsNonRoot": True}
    assert shlex.split(line) == [
        "kubectl", "debug", "-i", "--quiet", "--namespace=mq", "broker-a-0", "--target=broker", "--image=rmqtx:0.1.0",
        "--profile=restricted", "--custom=PROFILE.json", "--", "rmqtx", *command,
    ]
    root = typer.main.get_command(app)
    root.commands[command[0]].make_context("rmqtx", command[1:])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words", [[], ["a", "b"], ["a", "--user", "0"], ["a", "--store", "store"], ["a", "--unknown"], ["a", "-n"]]
)
def test_the_plugin_refuses(words: list[str]) -> None:
    done = plugin(*words, "--dry-run") if words[-1:] != ["-n"] else plugin(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kubectl rmqtx: ")
