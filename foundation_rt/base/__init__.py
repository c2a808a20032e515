"""The ground of everything: time, identifiers, JSON, logs, settings, schemas, databases."""
