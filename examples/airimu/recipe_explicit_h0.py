"""The same with the team's cure, which changes nothing. In a file of its own, so that `recipe.py` needs no name."""

from dataclasses import replace

import recipe
from model import CodeNetExplicitH0

explicit_h0 = replace(recipe.airimu, model=lambda: CodeNetExplicitH0().eval())
