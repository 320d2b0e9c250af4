"""Draw texts of the project at random, to be judged against the rules of plain English in `judgment.md`.

`python tests/quality/draw_texts.py SEED` prints 30 docstrings, 30 documentation paragraphs and 20 error messages with
their places. A text is drawn by a hash of the seed and its place, so a draw changes only if a drawn place goes or a new
place takes its turn.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = tuple(f"fairway-{number}" for number in range(1, 9))
DRAWN_COUNTS = {"docstring": 30, "paragraph": 30, "message": 20}
MIN_WORDS = 6
"""Shorter paragraphs are labels and links."""

Texts = dict[str, str]
"""Texts by place."""


def collect_docstrings() -> Texts:
    """Return the docstrings of src/fairway, by file and dotted name."""
    texts: Texts = {}
    for path in sorted((ROOT / "src/fairway").rglob("*.py")):
        texts |= {f"{path.relative_to(ROOT)} {name}": text for name, text in walk_docstrings(parse(path), "")}
    return texts


def walk_docstrings(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    for child in (node, *ast.iter_child_nodes(node)) if isinstance(node, ast.Module) else ast.iter_child_nodes(node):
        if isinstance(child, ast.Module):
            name = "module"
        elif isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            yield from walk_docstrings(child, f"{name}.")
        else:
            continue
        docstring = ast.get_docstring(child)
        if docstring:
            yield name, docstring


def collect_paragraphs() -> Texts:
    """Return the paragraphs of the documents, by file, heading and number below the heading."""
    texts: Texts = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        heading, number = "top", 0
        for block in re.split(r"\n\s*\n", re.sub(r"^( *)```.*?^\1```", "", path.read_text(), flags=re.M | re.S)):
            lines = block.strip().splitlines()
            if lines and lines[0].startswith("#"):
                heading, number = lines.pop(0).lstrip("# "), 0
            text = " ".join(line.strip() for line in lines)
            if len(text.split()) >= MIN_WORDS and not re.match(r"[|<!]|    ", block.lstrip("\n")):
                number += 1
                texts[f"{path.relative_to(ROOT)} § {heading} {number}"] = text
    return texts


def collect_messages() -> Texts:
    """Return the texts of the finding codes, and the messages passed to `complain`, by file and name."""
    codes = ROOT / "src/fairway/diagnostics/codes.py"
    texts: Texts = {}
    for call in find_calls(parse(codes), "CodeEntry"):
        code, title, _, why, todo, *_ = call.args
        name = f"{codes.relative_to(ROOT)} {ast.unparse(code).removeprefix('Code.')}"
        texts |= {f"{name} title": ast.literal_eval(title), f"{name} why": ast.literal_eval(why)}
        texts |= {f"{name} do {number}": text for number, text in enumerate(ast.literal_eval(todo), 1)}
    for path in sorted((ROOT / "src/fairway").rglob("*.py")):
        for function in ast.walk(parse(path)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [call for call in find_calls(function, "complain") if len(call.args) > 1]
                messages = [call.args[1] for call in calls if isinstance(call.args[1], ast.JoinedStr | ast.Constant)]
                place = f"{path.relative_to(ROOT)} {function.name} complain"
                texts |= {f"{place} {number}": ast.unparse(text) for number, text in enumerate(messages, 1)}
    return texts


def find_calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def collect_texts(kind: str) -> Texts:
    return {"docstring": collect_docstrings, "paragraph": collect_paragraphs, "message": collect_messages}[kind]()


def draw(seed: str, kind: str) -> Texts:
    """Return the texts of a kind whose places have the lowest hashes with this seed."""
    texts = collect_texts(kind)
    order = sorted(texts, key=lambda place: hashlib.sha256(f"{seed} {place}".encode()).digest())
    return {place: texts[place] for place in order[: DRAWN_COUNTS[kind]]}


def main() -> None:
    seed = sys.argv[1] if len(sys.argv) > 1 else SEEDS[0]
    for kind in DRAWN_COUNTS:
        for number, (place, text) in enumerate(draw(seed, kind).items(), 1):
            print(f"{kind} {number}: {place}\n{text}\n")


if __name__ == "__main__":
    main()
