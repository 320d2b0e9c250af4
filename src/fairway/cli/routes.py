"""fairway routes"""

from __future__ import annotations

import json as json_module

from fairway.cli.options import JsonOption
from fairway.convert.ladder.route import ROUTES


def routes(json: JsonOption = False) -> int:
    """List the routes that --route accepts."""
    if json:
        print(json_module.dumps(ROUTES, indent=1))
        return 0
    for name, description in ROUTES.items():
        print(f"{name:<16} {description}")
    return 0
