"""Is it the model, the settings or the machine? Models that are known to export, through everything here."""
