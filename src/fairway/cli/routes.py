"""fairway routes"""

from __future__ import annotations

import json as json_module

from fairway.cli.options import JsonOption
from fairway.convert.ladder.route import ROUTES


def routes(json: JsonOption = False) -> int:
    """List the routes, as `--route` takes them."""
    if json:
        print(json_module.dumps(ROUTES, indent=1))
        return 0
    for name, what in ROUTES.items():
        print(f"{name:<16} {what}")
    return 0
