"""Tell whether the model, the settings or the machine is at fault, with models that are known to export."""
