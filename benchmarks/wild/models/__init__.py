"""Models of other people's packages, by subject. Importing the package fills `entry.WILD`."""

import importlib
import pkgutil

for _subject in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_subject.name}")
