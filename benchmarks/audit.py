"""Does the audit of printed tables cry wolf, and does it sleep?

Of 500 generated sound studies none may fail; of 500 with one planted error each at least 95 % must be found, by the
right rule first. Then the corpus of real tables, the time a page takes, and texts that are damaged.
"""

import random
import subprocess
import sys
import time
import tomllib
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit_errors import KINDS, plant
from audit_formats import FORMATS, printed
from audit_kind import Kind
from audit_studies import make_study
from common import keep, say
from worldsize.analysis.audit.answer import audit
from worldsize.analysis.audit.findings import Finding, Verdict
from worldsize.documents.read import read
from worldsize.errors import UsageError

STUDIES = 500
DAMAGED = 10_000
ASKED = 0.95
CORPUS = Path(__file__).parent / "audit_tables"


@dataclass
class Outcome:
    """What was found of one kind of error."""

    rule: str
    planted: int = 0
    found: int = 0
    """Studies in which anything at all was found."""
    right: int = 0
    """Studies in which the right rule came first."""
    instead: Counter[str] = field(default_factory=Counter)
    """What came first where it was not the right rule."""

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "instead": dict(self.instead)}


def run(data_dir: str | None) -> None:
    """Measure, print and keep."""
    kept: dict[str, Any] = {"sound": _sound(), "planted": _planted(), "corpus": _corpus()}
    kept |= {"page": _page(), "torch_imported": _imports_torch(), "damaged": _damaged()}
    keep("audit", kept)


def sound_text(place: int) -> str:
    """The text of a sound study."""
    rng = random.Random(f"sound {place}")
    study = make_study(rng)
    return printed(study, list(FORMATS)[place % len(FORMATS)], rng)


def planted_text(place: int) -> tuple[str, Kind]:
    """The text of a study with one error, and of what kind it is."""
    rng = random.Random(f"planted {place}")
    kind = KINDS[place % len(KINDS)]
    study = plant(kind, rng).study
    return printed(study, kind.formats[place // len(KINDS) % len(kind.formats)], rng), kind


def findings(text: str | None, path: str = "-") -> list[Finding]:
    """What the audit finds, what is merely missing left out; an exception counts as a FAIL of no rule."""
    try:
        found = audit(read(path, text=text, format=None)).findings
    except Exception as error:  # one study must not end the benchmark
        return [Finding("exception", Verdict.FAIL, _where(error))]
    return [finding for finding in found if finding.verdict is not Verdict.MISSING]


def _sound() -> dict[str, Any]:
    """How many sound studies have a finding of each verdict, by rule."""
    studies: Counter[str] = Counter()
    rules: dict[str, Counter[str]] = {}
    for place in range(STUDIES):
        found = findings(sound_text(place))
        for verdict in {str(finding.verdict) for finding in found}:
            studies[verdict] += 1
            of = rules.setdefault(verdict, Counter())
            of.update({finding.rule for finding in found if finding.verdict == verdict})
    print(f"{STUDIES} sound studies: FAIL in {studies['FAIL']} (asked: none)")
    for verdict, of in rules.items():
        print(f"  {verdict} in {studies[verdict]}: {_counted(of)}")
    return {"studies": STUDIES, "with": dict(studies), "rules": {name: dict(of) for name, of in rules.items()}}


def _planted() -> dict[str, Any]:
    """How many planted errors are found, and by the right rule first."""
    outcomes = {kind.name: Outcome(kind.rule) for kind in KINDS}
    for place in range(STUDIES):
        text, kind = planted_text(place)
        found, outcome = findings(text), outcomes[kind.name]
        raised = bool(found) and found[0].rule == "exception"
        outcome.planted += 1
        outcome.found += bool(found) and not raised
        if found and found[0].rule in (kind.rule, *kind.also):
            outcome.right += 1
        else:
            outcome.instead[found[0].rule if found else "nothing"] += 1
    right = sum(outcome.right for outcome in outcomes.values())
    found_all = sum(outcome.found for outcome in outcomes.values())
    print(f"{STUDIES} planted errors of {len(KINDS)} kinds: {found_all} found, {right} by the right rule first", end="")
    print(f" (asked: {ASKED:.0%}; {right / STUDIES:.1%})")
    for name, each in outcomes.items():
        rest = f"; first instead: {_counted(each.instead)}" if each.instead else ""
        print(f"  {name} -> {each.rule}: {each.right} of {each.planted}, found {each.found}{rest}")
    kinds = {name: outcome.as_json() for name, outcome in outcomes.items()}
    return {"studies": STUDIES, "found": found_all, "right": right, "kinds": kinds}


def _corpus() -> dict[str, Any]:
    """Real tables: a FAIL means wrong."""
    entries = tomllib.loads((CORPUS / "index.toml").read_text(encoding="utf-8"))["table"]
    failed: dict[str, list[str]] = {"sound": [], "wrong": [], "unclear": []}
    total: Counter[str] = Counter()
    for entry in entries:
        total[entry["verdict"]] += 1
        found = findings(None, str(CORPUS / entry["file"]))
        rules = sorted({finding.rule for finding in found if finding.verdict is Verdict.FAIL})
        if rules:
            failed[entry["verdict"]].append(f"{entry['file']}: {', '.join(rules)}")
    judged = len(failed["wrong"]) + len(failed["sound"])
    precision = len(failed["wrong"]) / judged if judged else None
    print(
        f"{len(entries)} real tables: FAIL on {len(failed['sound'])} of {total['sound']} sound (asked: none),", end=" "
    )
    print(
        f"{len(failed['wrong'])} of {total['wrong']} wrong, {len(failed['unclear'])} of {total['unclear']} unclear;",
        end=" ",
    )
    print(f"precision {precision:.2f}" if precision is not None else "no precision")
    for line in failed["sound"]:
        print(f"  FAIL on sound {line}")
    return {"tables": dict(total), "failed": failed, "precision": precision}


def _page() -> dict[str, Any]:
    """Seconds for a page of ten tables."""
    page = "\n\n".join(sound_text(place * len(FORMATS)) for place in range(10))  # all Markdown
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        tables = len(audit(read("-", text=page, format="markdown")).readings)
        seconds.append(time.perf_counter() - begin)
    print(f"a page of {tables} tables: {sorted(seconds)[2]:.3f} s")
    return {"tables": tables, "seconds": seconds}


def _imports_torch() -> bool:
    """Whether reading and auditing load torch."""
    code = "import sys, worldsize.documents.read, worldsize.analysis.audit.answer; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    print(f"torch imported: {shown.strip()}")
    return shown.strip() == "True"


def _damaged() -> dict[str, Any]:
    """Damaged texts: they are read and audited, or refused with a UsageError; no other exception, and not for long."""
    results: Counter[str] = Counter()
    longest, longest_read, failures = 0.0, 0.0, []
    texts = [(sound_text(place), list(FORMATS)[place % len(FORMATS)]) for place in range(100)]
    for place in range(DAMAGED):
        rng = random.Random(f"damaged {place}")
        text, kind = rng.choice(texts)
        text = damaged(text, rng)
        begin = time.perf_counter()
        try:
            document = read("-", text=text, format=rng.choice((None, kind, rng.choice(list(FORMATS)))))
            results["document"] += 1
            longest_read = max(longest_read, time.perf_counter() - begin)
            audit(document)
        except UsageError:
            results["refused"] += 1
        except Exception as error:  # the benchmark tells them apart
            results["raised"] += 1
            failures.append(f"damaged {place}: {_where(error)}")
        longest = max(longest, time.perf_counter() - begin)
        if place % 2000 == 1999:
            say(f"  {place + 1} of {DAMAGED} damaged texts: {dict(results)}")
    print(
        f"{DAMAGED} damaged texts: {_counted(results)}; "
        f"the longest took {longest_read:.3f} s to read, {longest:.3f} s with the audit"
    )
    for line in failures[:5]:
        print(f"  {line}")
    return {
        "texts": DAMAGED,
        "results": dict(results),
        "longest_read_s": longest_read,
        "longest_s": longest,
        "failures": failures[:20],
    }


def _where(error: Exception) -> str:
    """What was raised, and in which line of which file."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def damaged(text: str, rng: random.Random) -> str:
    """A text with pieces cut out, doubled, exchanged, or made nonsense."""
    for _ in range(rng.randint(1, 6)):
        if not text:
            return "\0"
        a, b = sorted((rng.randrange(len(text)), rng.randrange(len(text))))
        b = min(b, a + 60)
        text = rng.choice(
            (
                text[:a] + text[b:],
                text[:a] + text[a:b] * rng.randint(2, 5) + text[b:],
                text[:a] + text[a:b][::-1] + text[b:],
                text[:a]
                + rng.choice(("|", "&", "\\", "{", "}", "<td", "\t", '"', "\n", "\0", "1e999", "é\u202e", ","))
                + text[a:],
                text[: max(1, b)],
                text.replace(text[a], rng.choice("|&\\{}<>,;\"' \n"), rng.randint(1, 20)),
            )
        )
    return text


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
