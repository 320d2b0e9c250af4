"""Count what STYLE bans in a file, and keep the allowances of `prose_debt.toml`.

`python tests/contracts/prose.py` lowers the allowances to what is left. It never raises one: a new or renamed file may
take over only what other files have lost.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEBT = Path(__file__).with_name("prose_debt.toml")

BANNED_PHRASES = (
    r"anew",
    r"whoever",
    r"(?:no|some)body",
    r"(?<!there )is no (?!longer|known|more than|less than)\w+",
    r"hangs? on",
    r"hangs? together",
    r"(?:lies|lie|lay) (?:beside|elsewhere|there)",
    r"stands? in for",
    r"of (?:its|their) own",
    r"g(?:one|oes|oing) on with",
    r"unless told",
    r"is told (?:by|from)",
    r"what it is at",
    r"speaks of",
    r"as it is asked",
)
"""Word-for-word translations from another language. Words with a legitimate use (where, otherwise) are not counted."""

BRITISH_SPELLINGS = (
    r"(?:quant|optim|recogn|initial|normal|serial|organ|general|special|local|parametr|minim|maxim|summar|token|vector|"
    r"synchron|material|emphas|categor|custom|author|final|util|visual|memor|standard|penal)is(?:e[dsr]?|ers|ing|ations?)",
    r"behaviours?",
    r"coloured",
    r"colours?",
    r"licences?",
    r"centred?",
    r"favour\w*",
    r"neighbour\w*",
    r"modell(?:ed|ing)",
    r"labell(?:ed|ing)",
    r"analys(?:e|ed|ing)",
    r"learnt",
    r"spoilt",
    r"whilst",
    r"amongst",
    r"artefacts?",
)

QUESTION_WORDS = {"what", "where", "whether", "how", "who", "whose", "which", "when", "why"}
"""A docstring starts with a verb or names the thing; these start a riddle."""

LONGEST_TEST_NAME_WORDS = 12

BANNED = re.compile(rf"\b(?:{'|'.join(BANNED_PHRASES)})\b", re.IGNORECASE)
BRITISH = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(BRITISH_SPELLINGS)})(?![A-Za-z])", re.IGNORECASE)
NOT_PROSE = re.compile(r"^```.*?^```$|^    \S.*$|`[^`\n]*`|\]\([^)]*\)|<[^>\n]+>", re.MULTILINE | re.DOTALL)


def checked_files() -> list[Path]:
    """Return the documents and the sources that the rules hold for."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    rules = ("tests/contracts/prose.py", "tests/contracts/test_prose.py")
    as_people_write = ("benchmarks/corpus/idioms/",)
    skipped = (*as_people_write, *rules)
    return sorted(ROOT / name for name in listed if not name.startswith(skipped) and (ROOT / name).exists())


def count(path: Path) -> dict[str, int]:
    """Count a file's hits by rule; rules without a hit are left out."""
    text = path.read_text()
    counts = count_in_page(text) if path.suffix == ".md" else count_in_module(text, is_test="tests" in path.parts)
    return {rule: hits for rule, hits in counts.items() if hits}


def count_in_page(text: str) -> dict[str, int]:
    """Count banned phrases and British spellings in a page's prose; code and links are left out."""
    prose = NOT_PROSE.sub(" ", text)
    return {"phrases": len(BANNED.findall(prose)), "spelling": len(BRITISH.findall(prose))}


def count_in_module(text: str, is_test: bool) -> dict[str, int]:
    """Count hits in a module's docstrings, comments and strings."""
    tree = ast.parse(text)
    names = [
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {
        "phrases": len(BANNED.findall(text)),
        "spelling": len(BRITISH.findall(text)),
        "docstrings": sum(first_word(docstring) in QUESTION_WORDS for docstring in docstrings(tree)),
        "test_names": sum(len(name.split("_")) - 1 > LONGEST_TEST_NAME_WORDS for name in names) if is_test else 0,
        "fmt_skip": len(re.findall(r"#\s*fmt:\s*skip", text)),
    }


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def first_word(docstring: str) -> str:
    return re.split(r"[\s,.:;?]", docstring.strip(), maxsplit=1)[0].lower()


def read_debt() -> dict[str, dict[str, int]]:
    """Return the allowances: by file, then by rule."""
    return tomllib.loads(DEBT.read_text())


def lowered(debt: dict[str, dict[str, int]], found: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the allowances that fit `found`; raise ValueError where a rule's total would rise."""
    kept: dict[str, dict[str, int]] = {}
    for name, hits in found.items():
        before = debt.get(name)
        kept[name] = hits if before is None else {rule: min(n, before.get(rule, 0)) for rule, n in hits.items()}
    for rule in sorted({rule for hits in kept.values() for rule in hits}):
        was, now = (sum(hits.get(rule, 0) for hits in table.values()) for table in (debt, kept))
        if now > was:
            new = sorted(name for name in kept if name not in debt and kept[name].get(rule))
            raise ValueError(f"{rule}: {now} hits, {was} allowed; the new files with hits are {', '.join(new)}")
    return kept


def written(debt: dict[str, dict[str, int]]) -> str:
    """Return the allowances as TOML, one line for each file."""
    lines = ["# What is left to rewrite, by file and rule. It may only fall: `python tests/contracts/prose.py`."]
    for name, hits in sorted(debt.items()):
        if any(hits.values()):
            cells = ", ".join(f"{rule} = {n}" for rule, n in sorted(hits.items()) if n)
            lines.append(f'"{name}" = {{{cells}}}')
    return "\n".join((*lines, ""))


def main() -> None:
    found = {str(path.relative_to(ROOT)): count(path) for path in checked_files()}
    try:
        DEBT.write_text(written(lowered(read_debt(), found)))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
