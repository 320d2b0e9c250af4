"""Values that no input reaches, computed for real while a model is captured."""

from fairway.remedies.constants.constants import Constants as Constants
from fairway.remedies.constants.followed import NOT_HELD as NOT_HELD
from fairway.remedies.constants.followed import Origin as Origin
