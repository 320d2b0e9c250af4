"""The things that all steps of one export or judgment share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fairway.convert.types import Settings
from fairway.model.subject import Subject
from fairway.record.progress import EventSink, ignore_event
from fairway.workers.attempt import Workers


@dataclass(frozen=True)
class ExportSession:
    """Workers, subject, settings and staging folder of one export or judgment, and its event sink."""

    workers: Workers
    subject: Subject
    settings: Settings
    folder: Path
    """The staging folder, in which candidates are written."""
    data: Sequence[list[torch.Tensor]] = ()
    """The user's own samples."""
    on_event: EventSink = ignore_event
