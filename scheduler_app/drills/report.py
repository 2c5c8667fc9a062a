"""What a drill found, for a person and for a script."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler_app.drills.checker import Finding


@dataclass(slots=True, kw_only=True)
class Report:
    """One drill, from its faults to its findings."""

    drill: str
    summary: str
    ttl_s: float
    seconds: float = 0.0  # of the whole drill
    faults: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    recovered_s: dict[str, float] = field(
        default_factory=dict
    )  # what had to come back, after how long
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the drill does not cover, and the like
    kept: str = ""  # the folder, where it was kept

    @property
    def holds(self) -> bool:
        """Whether every finding holds, and there is one."""
        return bool(self.findings) and all(finding.holds for finding in self.findings)


def as_dict(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    return {"holds": report.holds, **asdict(report)}


def as_text(report: Report) -> str:
    """The report in lines; what does not hold names its rows."""
    lines = ["", f"Drill {report.drill}: {report.summary}", ""]
    lines += [f"  fault      {fault}" for fault in report.faults]
    lines += [f"  {noun:<10} {number}" for noun, number in report.numbers.items()]
    lines += [f"  recovered  {what}: {s:.1f} s" for what, s in report.recovered_s.items()]
    lines += [f"  note       {note}" for note in report.notes]
    lines.append("")
    what = max((len(finding.what) for finding in report.findings), default=0)
    expected = max((len(finding.expected) for finding in report.findings), default=0)
    for finding in report.findings:
        sign = "held  " if finding.holds else "BROKEN"
        lines.append(
            f"  {sign}  {finding.what:<{what}}  expected {finding.expected:<{expected}}"
            f"  seen {finding.seen}"
        )
        lines += [f"            {row}" for row in finding.named]
    broken = sum(not finding.holds for finding in report.findings)
    lines.append("")
    lines.append(
        f"All {len(report.findings)} assertions held, in {report.seconds:.0f} s."
        if report.holds
        else f"{broken} of {len(report.findings)} assertions did not hold."
    )
    if report.kept:
        lines.append(f"The stack's folder is kept: {report.kept}")
    return "\n".join(lines)
