"""The states of many transactions as small numbers: comparing texts costs two hundred times as much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtx.readers.model.columns import Bools
from rmqtx.verdicts.model.state import State

_NUMBERS = {state: number for number, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class StateNumbers:
    """One state per transaction, as its number among State."""

    numbers: npt.NDArray[np.int8]

    @staticmethod
    def chosen(choices: Sequence[tuple[Bools, State]], other: State) -> StateNumbers:
        """Return for each transaction the state of the first choice that holds, else the other one."""
        masks, values = [mask for mask, _ in choices], [np.int8(_NUMBERS[state]) for _, state in choices]
        return StateNumbers(np.select(masks, values, np.int8(_NUMBERS[other])))

    def replaced(self, rows: Bools, state: State) -> StateNumbers:
        """Return the states with another one for some transactions."""
        return StateNumbers(np.where(rows, np.int8(_NUMBERS[state]), self.numbers))

    def are(self, *states: State) -> Bools:
        """Return which transactions have one of the given states."""
        found: Bools = self.numbers == _NUMBERS[states[0]]
        for state in states[1:]:
            found |= self.numbers == _NUMBERS[state]
        return found

    def names(self) -> pa.Array:
        """Return the states as text."""
        return pa.array(list(State), pa.string()).take(pa.array(self.numbers))
