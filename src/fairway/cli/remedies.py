"""fairway remedies"""

from __future__ import annotations

import json as json_module

from fairway.cli.options import JsonOption


def remedies(json: JsonOption = False) -> int:
    """List the remedies: what each repairs, why it is safe."""
    from fairway.convert.remedies.catalogue import CATALOGUE

    if json:
        rows = [
            {
                "name": r.name,
                "cures": r.cures,
                "title": r.title,
                "stage": r.stage,
                "affected": r.affected,
                "upstream": list(r.upstream),
                "safety": r.safety,
            }
            for r in CATALOGUE.values()
        ]
        print(json_module.dumps(rows, indent=1))
        return 0
    for remedy in CATALOGUE.values():
        seen = ", ".join(f"{package}{versions}" for package, versions in remedy.affected.items()) or "any version"
        print(f"{remedy.name}  (repairs {remedy.cures}, {remedy.stage})")
        print(f"    {remedy.title}")
        print(f"    seen in   {seen}")
        print(f"    upstream  {', '.join(remedy.upstream) or 'no known upstream issue'}")
        print(f"    safe      {remedy.safety}")
    return 0
