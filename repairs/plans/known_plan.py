"""A plan file as receipts name it: file, content, digest, authors, approver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.repairs.plans.draft_plan import digest_of
from rmqtx.repairs.receipts.plan_file import Plan, parse_plan
from rmqtx.repairs.receipts.receipts import Receipt


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A plan file as receipts name it."""

    file: Path
    plan: Plan
    text: bytes

    @property
    def digest(self) -> str:
        """The digest by which receipts name it."""
        return digest_of(self.text)

    def known_as(self, approved_by: str | None) -> dict[str, str | None]:
        """The plan in receipts: file, digest, authors and approver."""
        return {
            "file": str(self.file), "digest": self.digest, "written_by": ", ".join(self.plan.written_by) or None,
            "approved_by": approved_by,
        }  # fmt: skip

    @classmethod
    def read(cls, file: Path) -> KnownPlan:
        """Read the file.

        Raises: UnreadableFile; BadText.
        """
        try:
            text = file.read_bytes()
        except OSError as error:
            raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error
        return cls(file, parse_plan(text, str(file)), text)

    def is_of(self, receipt: Receipt) -> bool:
        """Whether a receipt is of a run of this plan."""
        return digest_in(receipt) == self.digest


def digest_in(receipt: Receipt) -> str | None:
    """The digest of the plan that a receipt names."""
    return None if receipt.plan is None else receipt.plan.get("digest")
