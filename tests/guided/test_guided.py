"""The inputs that are kept are played again without atheris; `make guided` looks for new ones."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtx.readers.log.op_messages import parse_op_bodies
from tests.guided import corpora
from tests.guided.targets import TARGETS


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_no_kept_input_makes_a_target_fail(target: str) -> None:
    inputs = corpora.kept(target)
    assert len(inputs) > 1
    for name, data in inputs.items():
        try:
            TARGETS[target](data)
        except Exception as error:
            raise AssertionError(f"{target}: input {name} of its corpus") from error


def test_a_target_finds_a_decoder_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(bodies: Any, intact: Any) -> Any:
        numbers, forms = parse_op_bodies(bodies, intact)
        return numbers, forms.slice(0, max(0, len(forms) - 1))

    monkeypatch.setattr("tests.guided.targets.parse_op_bodies", wrong)
    with pytest.raises((AssertionError, ValueError)):
        TARGETS["op-bodies"](b"1,2,\n3")
