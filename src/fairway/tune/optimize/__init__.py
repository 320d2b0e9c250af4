"""Optimizer passes of other projects, each kept only if measurements show that it helps."""
