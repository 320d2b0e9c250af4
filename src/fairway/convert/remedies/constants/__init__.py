"""Values that no input reaches, computed for real while a model is captured."""

from fairway.convert.remedies.constants.constants import Constants as Constants
from fairway.convert.remedies.constants.real_values import NOT_HELD as NOT_HELD
from fairway.convert.remedies.constants.real_values import Origin as Origin
