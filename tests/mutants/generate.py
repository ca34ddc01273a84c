"""A seeded sample of the mutants that cosmic-ray makes, as JSON; runs in an environment of its own.

Usage: python -m mutants.generate FOLDER OUTPUT COUNT SEED
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-not-found]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-not-found]
from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-not-found]

from mutants.skeleton import skeleton

UNIONS = "core/ReplaceBinaryOperator_BitOr"
"""In the core `|` joins types only: whatever stands there instead says nothing about a decision."""


Place = tuple[str, int, int]
"""A file, a line and a column."""


def places(path: Path) -> dict[Place, list[tuple[str, int]]]:
    """Return where a file can be changed, and how: by which operator, at which of its occurrences."""
    found: dict[Place, list[tuple[str, int]]] = {}
    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    for name in operator_names():
        kind = get_operator(name)
        if kind.arguments() or name.startswith(UNIONS):
            continue
        operator, occurrence = kind(), 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                found.setdefault((path.name, line, column), []).append((name, occurrence))
                occurrence += 1
    return found


def sample(folder: Path, count: int, seed: int) -> Iterator[dict[str, object]]:
    """Yield one mutant each of ``count`` places: one with many operators counts no more than the others."""
    ways = {place: how for path in sorted(folder.glob("*.py")) for place, how in places(path).items()}
    dice = random.Random(seed)
    for place in dice.sample(sorted(ways), len(ways)):
        if count == 0:
            return
        name, occurrence = dice.choice(ways[place])
        source = (folder / place[0]).read_text(encoding="utf-8")
        mutated = mutate_code(source, get_operator(name)(), occurrence)
        if mutated is not None and skeleton(mutated) != skeleton(source):
            count -= 1
            file, line, column = place
            operator = name.partition("/")[2]
            yield {"file": file, "line": line, "column": column, "operator": operator, "source": mutated}


def main() -> None:
    """Write the sample."""
    folder, output, count, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    found = list(sample(folder, count, seed))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found), encoding="utf-8")
    print(f"{len(found)} mutants of {folder}, drawn by seed {seed}")


if __name__ == "__main__":
    main()
